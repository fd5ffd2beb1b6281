// KINTSUGI_CHECK: invariants that are checked in release builds too.
//
// Errors: a failed check throws CheckFailure. The library is a guest in a trainer's process and must not end it; the
// driver threads catch the exception at their edge, log it and report the rank as broken.
#pragma once

#include <stdexcept>
#include <string>

#include "runtime/base/export.h"

namespace kintsugi {

class KINTSUGI_EXPORT CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] KINTSUGI_EXPORT void FailCheck(const char* file, int line, const char* condition, const std::string& message);

}  // namespace kintsugi

#define KINTSUGI_CHECK(condition, message)                                       \
  do {                                                                           \
    if (!(condition)) [[unlikely]]                                               \
      ::kintsugi::FailCheck(__FILE__, __LINE__, #condition, (message));          \
  } while (false)
