// Options of an AOA program's evaluation.
#pragma once

#include <cstdint>

namespace kintsugi::aoa {

// Bounds on what a short program may grow into. Passing one is kResourceExhausted and names it.
struct Limits {
  int64_t names = 4'000'000;              // in all generated statements
  int64_t name_bytes = int64_t{1} << 28;  // characters of these
  int64_t slices = 4'000'000;             // in all descriptions together
  int64_t steps = 1000;                   // casts, permutes and reshapes behind each other on one slice
};

struct Options {
  // The program is read backwards: the caller's source is the program's destination (Paddle: aoa_config_reverse).
  bool reverse = false;
  // A statement whose star or id pattern matches nothing is left out; without this it is an error.
  bool optional = false;
  // A key of the destination that nothing is made into is listed and gets nothing; without this it is an error.
  bool allow_unexpected = false;
  Limits limits;
};

}  // namespace kintsugi::aoa
