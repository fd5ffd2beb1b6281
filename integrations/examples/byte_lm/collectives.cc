#include "integrations/examples/byte_lm/collectives.h"

#include <cstring>
#include <vector>

namespace kintsugi::byte_lm {

Status SingleRank::AllReduceSum(float*, size_t) { return Status::Ok(); }

Status SingleRank::AllGather(const float* mine, size_t count_each, float* all) {
  if (mine != all) std::memcpy(all, mine, count_each * sizeof(float));
  return Status::Ok();
}

Result<double> GatherSum(Collectives& group, double value) {
  if (group.size() == 1) return value;
  constexpr size_t kFloatsPerDouble = sizeof(double) / sizeof(float);
  float mine[kFloatsPerDouble];
  std::memcpy(mine, &value, sizeof(value));
  std::vector<float> all(kFloatsPerDouble * static_cast<size_t>(group.size()));
  KINTSUGI_RETURN_IF_ERROR(group.AllGather(mine, kFloatsPerDouble, all.data()));
  double sum = 0;
  for (size_t i = 0; i < all.size(); i += kFloatsPerDouble) {
    double part;
    std::memcpy(&part, &all[i], sizeof(part));
    sum += part;
  }
  return sum;
}

}  // namespace kintsugi::byte_lm
