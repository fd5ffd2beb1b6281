// Result<T, E>: a value, or the error that says why there is none.
//
// What: E is Status, or a type with parts that a program reads. Such an E has a default, which is not looked at, and
// `Status ToStatus() const`, which is never ok: every error can be passed on as a Status. A function that has no value
// to return says the same with Status, or with std::optional<E>.
// Errors: a REQUIRES that does not hold throws std::logic_error, as a failed check does.
// Invariants: what has the type T is a value and what has the type E an error, also where one converts to the other.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi {

// Throws what a failed check throws, which is a std::logic_error.
[[noreturn]] KINTSUGI_EXPORT void FailResult(const char* what);

template <typename T, typename E = Status>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, as is the next
  Result(E error) : error_(std::move(error)) {
    if constexpr (std::same_as<E, Status>)
      if (error_.ok()) FailResult("a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }

  // OK, or the error as a Status.
  const Status& status() const requires std::same_as<E, Status> { return error_; }
  Status status() const { return ok() ? Status::Ok() : error_.ToStatus(); }

  // REQUIRES: !ok().
  const E& error() const {
    if (ok()) FailResult("error() of a Result with a value");
    return error_;
  }

  // REQUIRES: ok().
  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

 private:
  T& Checked() {
    if (!value_) FailResult("value() of a failed Result");
    return *value_;
  }

  E error_;
  std::optional<T> value_;
};

}  // namespace kintsugi

#define KINTSUGI_CONCAT_INNER_(a, b) a##b
#define KINTSUGI_CONCAT_(a, b) KINTSUGI_CONCAT_INNER_(a, b)
#define KINTSUGI_ASSIGN_OR_RETURN_INNER_(result, lhs, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) return result.status();                       \
  lhs = std::move(result).value()

// KINTSUGI_ASSIGN_OR_RETURN(auto x, F()): x = the value of F(), or return its status.
#define KINTSUGI_ASSIGN_OR_RETURN(lhs, expression) \
  KINTSUGI_ASSIGN_OR_RETURN_INNER_(KINTSUGI_CONCAT_(kintsugi_result_, __LINE__), lhs, expression)
