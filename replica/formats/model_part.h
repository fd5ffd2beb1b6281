// ModelPart: which tensors of a run's full save are its model, and how they are written so that the model's library finds
// them: under their own names, apart from states of the optimizer and objects of the run.
//
// What: a prefix of names ("model/", as Python trainers register), which is left out in what is written and stands in front
// again when it is read; and copies, written for the library alone: what a run keeps in objects of its own (buffers) and is
// read back from there. What is written says both.
// Errors: kDataLoss, what says so is not what is written here.
// Threads: pure.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace kintsugi::formats {

struct ModelPart {
  std::string prefix;                         // empty: nothing is apart
  std::set<std::string, std::less<>> copies;  // by their own names

  bool Has(std::string_view key) const { return !prefix.empty() && key.starts_with(prefix); }
  // What a tensor of the model is called by its library.
  std::string OwnName(std::string_view key) const { return std::string(key.substr(prefix.size())); }

  // For the text fields of a header.
  std::string Encode() const;
  static Result<ModelPart> Decode(std::string_view text, const std::string& place);
};

}  // namespace kintsugi::formats
