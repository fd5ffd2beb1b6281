// Describe: a checkpoint, or a root full of them, as JSON for people and tools (`kintsugi ckpt show` and `verify`).
#pragma once

#include <string>

#include "replica/save/file_system.h"

namespace kintsugi::checkpoint {

// `path` is a checkpoint's folder or a root. Damage does not make this fail: it is part of the answer.
//
//   folder: {"path","complete","problem","verified" (with `verify`),"job","step","generation","world_size",
//            "data_bytes","moves_latest","side_files":[{"name","size_bytes","digest"}],"parts":[{"writer","file","shards":[{"layout","holders","file","file_bytes",
//            "tensors":[{"key","dtype","global_shape","local_shape","global_offset","flattened_range","size_bytes",
//            "digest"}]}],"objects":[{"rank","size_bytes","digest"}]}]}
//   root:   {"root","latest","newest_complete","checkpoints":[folders without parts],"unfinished":[names]}
//
// `verify` reads all data and compares checksums.
// Errors: kNotFound and what else listing the path gives.
KINTSUGI_EXPORT Result<std::string> DescribeCheckpoint(const std::string& path, bool verify = false,
                                                       FileSystem& files = PosixFileSystem());

}  // namespace kintsugi::checkpoint
