// ModelPart: which tensors of a run's full save are its model, and how they are written so that the model's library finds
// them: under their own names, apart from states of the optimizer and objects of the run.
//
// What: a prefix of names ("model/", as Python trainers register), which is left out in what is written and stands in front
// again when it is read; what a program called otherwise, and stays so; and copies, written for the library alone: what a run
// keeps in objects of its own (buffers) and is read back from there. What is written says all of them.
// Errors: kDataLoss, what says so is not what is written here.
// Threads: pure.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::aoa {
class Engine;
}

namespace kintsugi::formats {

struct ModelPart {
  std::string prefix;                         // empty: nothing is apart
  std::set<std::string, std::less<>> copies;  // by their own names
  std::set<std::string, std::less<>> renamed;  // what does not begin with the prefix

  bool Has(std::string_view key) const {
    return !prefix.empty() && (key.starts_with(prefix) || renamed.contains(key));
  }
  // What a tensor of the model is called by its library.
  std::string OwnName(std::string_view key) const {
    return std::string(key.starts_with(prefix) ? key.substr(prefix.size()) : key);
  }
  // What OwnName was made of.
  std::string RunsName(std::string_view own) const {
    return renamed.contains(own) ? std::string(own) : prefix + std::string(own);
  }

  // For the text fields of a header. `own`: and the names of all that is of the model, where its place does not say so.
  std::string Encode(const std::vector<std::string>* own = nullptr) const;
  static Result<ModelPart> Decode(std::string_view text, const std::string& place,
                                  std::set<std::string, std::less<>>* own = nullptr);
};

// The part as a program leaves it, whose source has the copies too: what of it is called otherwise then, and what is a copy.
// kInvalidArgument: two tensors would be saved under one name.
Status FollowProgram(const aoa::Engine& program, ModelPart* part);

}  // namespace kintsugi::formats
