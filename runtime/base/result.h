// Result<T>: a value, or the Status that says why there is none.
#pragma once

#include <optional>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace kintsugi {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, as is the next
  Result(Status status) : status_(std::move(status)) {
    KINTSUGI_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

 private:
  T& Checked() {
    KINTSUGI_CHECK(value_.has_value(), "value() of a failed Result");
    return *value_;
  }

  Status status_;
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
