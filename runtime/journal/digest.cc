#include "runtime/journal/digest.h"

#include <bit>
#include <map>
#include <optional>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/overloaded.h"
#include "runtime/journal/fields.h"

namespace kintsugi::journal {
namespace {

// Every value in a form that cannot be taken for another's: numbers have one width, what varies is preceded by its
// length.
class Bytes {
 public:
  explicit Bytes(std::string* out) : out_(out) {}

  void Put(uint64_t value) { out_->append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Put(int64_t value) { Put(static_cast<uint64_t>(value)); }
  void Put(int value) { Put(static_cast<uint64_t>(value)); }
  void Put(uint16_t value) { Put(static_cast<uint64_t>(value)); }
  void Put(bool value) { out_->push_back(value ? 1 : 0); }
  void Put(double value) { Put(std::bit_cast<uint64_t>(value)); }
  void Put(Duration value) { Put(static_cast<int64_t>(value.count())); }
  void Put(TimePoint value) { Put(value.nanoseconds()); }
  void Put(const std::string& value) {
    Put(static_cast<uint64_t>(value.size()));
    out_->append(value);
  }
  void Put(const std::vector<uint8_t>& value) {
    Put(static_cast<uint64_t>(value.size()));
    out_->append(value.begin(), value.end());
  }
  template <typename Tag, typename Rep>
  void Put(StrongId<Tag, Rep> value) {
    Put(static_cast<uint64_t>(value.value()));
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put(static_cast<uint64_t>(values.size()));
    for (const T& value : values) Put(value);
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    Put(value.has_value());
    if (value) Put(*value);
  }
  template <typename... T>
  void Put(const std::variant<T...>& value) {
    out_->push_back(static_cast<char>(value.index()));
    std::visit([this](const auto& v) { Put(v); }, value);
  }
  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      out_->push_back(static_cast<char>(value));
    } else {
      wire::ForEachField<T>([&]<typename F>(F) {
        if constexpr (std::is_same_v<typename F::Form, wire::SaidIfAny>) {
          if (F::Of(value) == typename F::Value{}) return;
          Put(std::string(F::kName));
        }
        Put(F::Of(value));
      });
    }
  }

 private:
  std::string* out_;
};

}  // namespace

void ActionDigest::Add(const std::vector<core::ControllerAction>& actions) {
  if (actions.empty()) return;
  bytes_.clear();
  Bytes(&bytes_).Put(actions);
  value_ = XXH3_64bits_withSeed(bytes_.data(), bytes_.size(), value_);
}

}  // namespace kintsugi::journal
