// JournalReader: a journal's inputs, record by record. A journal that is still being written is read up to where it
// stands.
//
// Errors: kNotFound and kPermissionDenied for the file, kInvalidArgument for one that is no journal or of another
// format, kDataLoss with record and byte for damage. A torn end is none: `torn` and `bytes_lost` tell of it.
// Threads: one.
// Ownership: holds the whole file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/journal/encoder.h"
#include "runtime/journal/frame.h"

namespace kintsugi::journal {

class JournalReader {
 public:
  static Result<std::unique_ptr<JournalReader>> Open(const std::string& path);
  // The file's bytes; `name` is for messages.
  static Result<std::unique_ptr<JournalReader>> Of(std::string bytes, const std::string& name);

  const Preamble& preamble() const { return preamble_; }
  // The next record's inputs, in place of what was there. False: there is no more.
  Result<bool> Next(std::vector<Input>* inputs);
  uint64_t record() const { return frames_->frames() - 1; }  // that Next gave, from 1

  // Once Next has given false. No reason: its writer died, or still writes.
  std::optional<EndReason> end() const { return end_; }
  bool torn() const { return torn_; }
  size_t bytes_lost() const { return torn_ ? frames_->bytes_left() : 0; }

 private:
  JournalReader() = default;
  Status Where(const Status& status) const;

  std::string bytes_, name_;
  std::optional<FrameReader> frames_;
  Decoder decoder_;
  Preamble preamble_;
  std::optional<EndReason> end_;
  bool torn_ = false;
};

}  // namespace kintsugi::journal
