#include "callbacks/state/experts.h"

#include <algorithm>
#include <string_view>

#include "callbacks/state/key.h"

namespace kintsugi {
namespace {

constexpr size_t kDigitsMax = 9;

bool IsNumber(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

Result<std::string> GlobalExpertKey(const std::string& key, int64_t rank, int64_t experts_per_rank) {
  const auto refuse = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "'" + PrintableKey(key) + "': " + what);
  };
  constexpr int64_t kMax = int64_t{1} << 31;
  if (rank < 0 || experts_per_rank < 1 || rank >= kMax || experts_per_rank >= kMax)
    return refuse("rank " + std::to_string(rank) + " of an expert-parallel group with " +
                  std::to_string(experts_per_rank) + " experts each is none");
  size_t number_at = std::string::npos, number_end = 0;
  std::string_view before;
  for (size_t at = 0; at <= key.size();) {
    const size_t end = std::min(key.find('.', at), key.size());
    const std::string_view part = std::string_view(key).substr(at, end - at);
    if ((before == "experts" || before == "local_experts") && IsNumber(part)) {
      number_at = at;
      number_end = end;
    }
    before = part;
    at = end + 1;
  }
  if (number_at == std::string::npos) return key;
  const std::string number = key.substr(number_at, number_end - number_at);
  const int64_t local = number.size() > kDigitsMax ? kMax : std::stoll(number);
  if (local >= experts_per_rank)
    return refuse("expert " + number + " is none of a rank that has experts 0 to " +
                  std::to_string(experts_per_rank - 1) + ": is the name global already?");
  return key.substr(0, number_at) + std::to_string(rank * experts_per_rank + local) + key.substr(number_end);
}

}  // namespace kintsugi
