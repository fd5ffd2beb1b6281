#include "runtime/base/check.h"

#include "runtime/base/result.h"

namespace kintsugi {

void FailCheck(const char* file, int line, const char* condition, const std::string& message) {
  throw CheckFailure(std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition + ": " + message);
}

void FailResult(const char* what) { throw CheckFailure(what); }

}  // namespace kintsugi
