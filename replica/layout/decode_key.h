// One key of encoded metadata, checked and appended (private to this folder).
#pragma once

#include <optional>

#include "replica/layout/metadata.pb.h"
#include "replica/layout/metadata_writer.h"

namespace kintsugi::layout {

// Appends the key to `out`, through `writer`, or says what is wrong with it. `out` holds the replica ids already.
std::optional<LayoutError> DecodeKey(const wire::Key& entry, Metadata* out, MetadataWriter* writer);

LayoutError FormatError(const std::string& key, const std::string& what);

}  // namespace kintsugi::layout
