// What torch.save wrote before 1.6, and does with _use_new_zipfile_serialization=False: five pickles behind one another
// (magic number, version, machine, value, keys of the storages), then each storage as its element count and its bytes.
//
// Errors: kDataLoss names file and byte.
// Threads: pure. Source of the format: torch/serialization.py, _legacy_save and _legacy_load (2.13, read).
#pragma once

#include <string>
#include <string_view>

#include "replica/formats/torch/archive.h"

namespace kintsugi::formats::torch {

// By its first bytes.
bool IsOldArchive(std::string_view bytes);
// Its storages become entries as those of a zip, "data/KEY", without checksums: the file has none. `bytes` outlives the
// archive.
Result<Archive> OpenOldArchive(std::string_view bytes, const std::string& place, uint64_t base);

}  // namespace kintsugi::formats::torch
