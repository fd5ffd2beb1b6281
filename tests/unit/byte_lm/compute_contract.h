// What every Compute<float> must do, held against the host's: each operation on random arrays of several shapes, the
// same within a tolerance, and the same bits when it is asked again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "integrations/examples/byte_lm/compute.h"
#include "runtime/base/random.h"

namespace kintsugi::byte_lm {

// A Compute and what keeps it alive.
struct ComputeCase {
  std::shared_ptr<void> owner;
  Compute<float>* compute = nullptr;
  std::string unavailable;  // why the tests must be skipped
};

struct ComputeParam {
  std::string name;
  std::function<ComputeCase()> make;
};

inline std::vector<float> RandomFloats(uint64_t seed, size_t count, double width = 1.0) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(width * (2 * random.Unit() - 1));
  return values;
}

inline std::vector<uint8_t> RandomBytes(uint64_t seed, size_t count, uint64_t below) {
  Random random(seed);
  std::vector<uint8_t> values(count);
  for (uint8_t& value : values) value = static_cast<uint8_t>(random.Below(below));
  return values;
}

// The arrays of one operation, in the memory of one Compute.
class Arrays {
 public:
  explicit Arrays(Compute<float>& compute) : compute_(compute) {}
  template <typename T>
  T* Put(const std::vector<T>& values) {
    auto array = std::make_shared<ComputeArray<T>>(compute_, values.size());
    T* const data = array->data();
    compute_.Upload(data, values.data(), values.size() * sizeof(T));
    kept_.push_back(std::move(array));
    return data;
  }
  float* Empty(size_t count) { return Put(std::vector<float>(count, 77.0f)); }

 private:
  Compute<float>& compute_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Runs an operation and gives back what it wrote: `outputs` are (array, elements).
using Outputs = std::vector<std::pair<const float*, size_t>>;
using Operation = std::function<Outputs(Compute<float>&, Arrays&)>;

inline std::vector<std::vector<float>> RunOn(Compute<float>& compute, const Operation& operation) {
  Arrays arrays(compute);
  std::vector<std::vector<float>> results;
  for (const auto& [data, count] : operation(compute, arrays)) {
    results.emplace_back(count);
    const Status read = compute.Download(results.back().data(), data, count * sizeof(float));
    EXPECT_TRUE(read.ok()) << read.ToString();
  }
  return results;
}

class ComputeContract : public testing::TestWithParam<ComputeParam> {
 protected:
  void SetUp() override {
    case_ = GetParam().make();
    if (!case_.unavailable.empty()) GTEST_SKIP() << case_.unavailable;
  }

  // `tolerance` of the largest value of an output.
  void ExpectAsOnHost(const Operation& operation, double tolerance, const std::string& what) {
    const auto expected = RunOn(HostCompute<float>(), operation), got = RunOn(*case_.compute, operation),
               again = RunOn(*case_.compute, operation);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t output = 0; output < got.size(); ++output) {
      double largest = 0, difference = 0;
      for (size_t i = 0; i < got[output].size(); ++i) {
        ASSERT_TRUE(std::isfinite(got[output][i])) << what << ", output " << output << ", element " << i;
        largest = std::max<double>(largest, std::fabs(expected[output][i]));
        difference = std::max<double>(difference, std::fabs(got[output][i] - expected[output][i]));
      }
      EXPECT_LE(difference, tolerance * std::max(largest, 1e-6)) << what << ", output " << output;
      EXPECT_EQ(std::memcmp(got[output].data(), again[output].data(), got[output].size() * sizeof(float)), 0)
          << what << ", output " << output << ": other bits the second time";
    }
  }

  ComputeCase case_;
};

inline std::string ComputeCaseName(const testing::TestParamInfo<ComputeParam>& info) { return info.param.name; }

}  // namespace kintsugi::byte_lm
