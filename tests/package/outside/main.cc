// What an outsider does first: describe state, register a handler, and see a mistake named. Exit 0 when all is as promised.
#include <cstdio>
#include <vector>

#include <kintsugi/callbacks/handlers/handlers.h>
#include <kintsugi/callbacks/state/descriptors.h>
#include <kintsugi/kintsugi.h>

#include "runtime/agent.h"

namespace {

kintsugi::ShardedTensor Describe(const char* key, std::vector<float>& values) {
  kintsugi::ShardedTensor tensor;
  tensor.key = key;
  tensor.dtype = kintsugi::DType::kFloat32;
  tensor.global_shape = tensor.local_shape = {static_cast<int64_t>(values.size())};
  tensor.global_offset = {0};
  tensor.memory.data = values.data();
  tensor.memory.size_bytes = values.size() * sizeof(float);
  return tensor;
}

kintsugi::Status DoNothing(kintsugi::HandlerContext&, void*) { return kintsugi::Status::Ok(); }

int Fail(const char* what, const kintsugi::Status& status) {
  std::printf("outside: %s: %s\n", what, status.ToString().c_str());
  return 1;
}

}  // namespace

int main() {
  static_assert(outside::kOwnAgent, "the outsider's own runtime/agent.h is the one that was found");
  std::vector<float> weights(16, 1.0f);
  kintsugi::ShardedTensor tensor = Describe("weights", weights);
  if (auto status = Validate(tensor); !status.ok()) return Fail("Validate", status);
  if (tensor.ByteCount() != 64) return Fail("ByteCount is not 64", kintsugi::Status::Ok());
  tensor.memory.size_bytes = 60;
  const auto mistake = Validate(tensor);
  if (mistake.ok()) return Fail("16 numbers in 60 bytes were taken", mistake);

  kintsugi::HandlerRegistry handlers;
  if (auto status = handlers.Register(kintsugi::HandlerKind::kStop, DoNothing, nullptr); !status.ok()) {
    return Fail("Register", status);
  }
  std::printf("outside: ok, and a mistake reads: %s\n", mistake.ToString().c_str());
  return 0;
}
