// Encoder: inputs -> payloads of a journal's frames. Ticks and beats that nothing came out of are gathered: two to four
// bytes for each, against some forty for an input of its own.
//
// Threads: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/journal/input.h"
#include "runtime/journal/records.h"

namespace kintsugi::journal {

// What a gathered beat leaves unsaid: as its rank's beat before.
struct LastBeat {
  core::Header header;
  uint64_t count = 0;
  Progress place;
};

class Encoder {
 public:
  std::string Begin(const Preamble& preamble);
  // True: it was gathered. False: `payload` is the input's own, and TakeQuiet's comes before it.
  bool Gather(const Input& input);
  std::string Encode(const Input& input);
  // What was gathered; empty: nothing.
  std::string TakeQuiet();
  size_t gathered() const { return quiet_.what.size(); }
  std::string End(EndReason why);

 private:
  uint64_t After(TimePoint now);

  TimePoint before_;
  std::map<Rank, LastBeat> beats_;
  QuietRecord quiet_;
};

class Decoder {
 public:
  // Errors: kDataLoss for bytes that are no record, kInvalidArgument for values outside their range and for a journal
  // of another format.
  Result<Preamble> Begin(std::string_view payload);
  // Appends the record's inputs, in their order. `end` is set at the last record.
  Status Decode(std::string_view payload, std::vector<Input>* inputs, std::optional<EndReason>* end);

 private:
  Status DecodeInput(const std::string& bytes, Input* out);
  Status TakeFrame(const std::string& bytes, Input* out);
  template <typename Said>
  Status TakeSaid(Said said, Input* out);
  Status DecodeQuiet(const QuietRecord& in, std::vector<Input>* out);
  Status Advance(uint64_t after_us);

  bool started_ = false;
  TimePoint now_;
  int world_size_ = 0;
  std::map<Rank, LastBeat> beats_;
};

}  // namespace kintsugi::journal
