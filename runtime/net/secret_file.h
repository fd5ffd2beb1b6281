// SecretFile: the secret that the nodes of a run share, in a file, and what takes its place there while the run goes
// on.
//
// The file has 32 bytes, or 64 while one secret is changed for another: the first 32 are what this side proves itself
// by, the others are accepted too. So nodes of one step and of the next understand each other: "old", "old, new",
// "new, old", "new".
// Threads: any.
// Errors: Open: kInvalidArgument names the file, and what is wrong with it.
// Invariants: what cannot be used changes nothing; connections that are there go on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/result.h"
#include "runtime/net/secret.h"

namespace kintsugi::net {

class SecretFile {
 public:
  static Result<std::shared_ptr<SecretFile>> Open(const std::string& file);
  ~SecretFile();
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  const std::shared_ptr<const Secret>& secret() const;
  // From now on what takes the file's place is taken up within a second or two.
  void Follow();
  // What came of a new content since the last call; nothing: there was none.
  std::optional<Status> TakeChange();

 private:
  struct State;
  explicit SecretFile(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

}  // namespace kintsugi::net
