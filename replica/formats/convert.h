// Convert: a checkpoint of any format becomes one of any other, perhaps with other names, types and cuts.
//
// What: catalog, AOA program, target layout, plan, proof, windows (write.h).
// Errors: those of the steps, each naming file, key or statement.
// Threads: as write.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/aoa/user_macro.h"
#include "replica/formats/format.h"
#include "replica/formats/write.h"

namespace kintsugi::formats {

struct ConvertOptions {
  std::string from_format;  // empty: found by what lies there
  std::string to_format;
  std::vector<std::string> statements;  // AOA; empty: names stay
  bool reverse = false;                 // they are run backwards
  aoa::UserMacros macros;               // words of their own
  std::optional<DType> dtype;           // every tensor of floats gets it
  std::vector<std::string> only;        // globs over the new names; empty: all
  ReadOptions read;
  LayOptions lay;
  std::optional<uint64_t> step;  // else the source's
  // `destination` is a folder of checkpoints of this format: the step's own one in it is written (Format::StepNamesOf).
  bool into_root = false;
  bool is_model_alone = false;  // of what a run saved, which the sidecar says
  bool side_files = true;  // configuration, tokenizer and the like go along, where the format has a folder for them
  WriteOptions write;
};

struct Converted {
  std::string from_format;
  uint64_t tensors = 0, objects = 0;
  uint64_t step = 0;
  WriteResult written;
  std::vector<std::string> notes;
  std::vector<std::string> left_out;  // side files and objects: which, and why
  std::string path;                   // what was written
};

KINTSUGI_EXPORT Result<Converted> Convert(const std::string& source, const std::string& destination,
                                          const ConvertOptions& options,
                                          checkpoint::FileSystem& files = checkpoint::PosixFileSystem());

// The same of a source that has been read.
KINTSUGI_EXPORT Result<Converted> ConvertCatalog(const Catalog& source, const std::string& destination,
                                                 const ConvertOptions& options, checkpoint::FileSystem& files);

bool IsFloat(DType dtype);

}  // namespace kintsugi::formats
