// Objects as text, for files whose side fields are text (safetensors' __metadata__): form, path and bytes, in JSON with
// base64.
//
// Errors: kDataLoss names the object.
// Threads: pure.
#pragma once

#include <string>

#include "replica/formats/catalog.h"

namespace kintsugi::formats {

std::string ObjectToText(const CatalogObject& object);
Result<CatalogObject> ObjectFromText(const std::string& key, const std::string& text);

}  // namespace kintsugi::formats
