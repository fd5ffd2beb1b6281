// What every fuzz target says of itself; each NAME_fuzz.cc defines both functions.
//
// A target hands bytes that nobody vouches for to one parser or state machine and checks what comes out. It is linked
// twice: with libFuzzer, which looks for inputs (libfuzzer_entry.cc), and with a test that replays the corpus
// (corpus_test.cc).
// Threads: one, unless the code under test has its own.
// Errors: a broken promise is a failed KINTSUGI_CHECK: libFuzzer takes the exception for a crash, the test reports it.
// Invariants: no clock, no randomness but what comes from the input: the same input does the same again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/random.h"

namespace kintsugi::fuzz {

// True: the code under test accepted the input to its end; false: it refused it.
bool Try(std::string_view input);

// Inputs that are accepted, made by the other side's production code: what libFuzzer starts from.
std::vector<std::string> Seeds();

// Takes one byte off the front, 0 where there is none.
inline uint8_t TakeByte(std::string_view* input) {
  if (input->empty()) return 0;
  const auto byte = static_cast<uint8_t>(input->front());
  input->remove_prefix(1);
  return byte;
}

// Calls `take` with pieces of the stream, each in memory of its own so that a sanitizer sees its borders, until it says
// stop. `how` chooses the borders.
template <typename Take>
void InPieces(uint8_t how, std::string_view stream, Take take) {
  Random random(how);
  while (!stream.empty()) {
    const size_t size =
        how == 0 ? stream.size() : std::min<size_t>(stream.size(), 1 + random.Below(how < 128 ? 8 : 400));
    const std::vector<char> piece(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(size));
    if (!take(std::string_view(piece.data(), piece.size()))) return;
    stream.remove_prefix(size);
  }
}

}  // namespace kintsugi::fuzz
