// What an outsider does first: register state and handlers, and see a mistake named. Exit 0 when all is as promised.
#include <cstdio>
#include <vector>

#include <kintsugi/callbacks/handlers/handlers.h>
#include <kintsugi/callbacks/state/registry.h>
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
  kintsugi::StateRegistry registry;
  if (auto status = registry.AddTensor(Describe("weights", weights)); !status.ok()) return Fail("AddTensor", status);
  if (registry.ByteCount() != 64) return Fail("ByteCount is not 64", kintsugi::Status::Ok());
  auto twice = registry.AddTensor(Describe("weights", weights));
  if (twice.ok()) return Fail("a second tensor of one key was taken", twice);

  kintsugi::HandlerRegistry handlers;
  if (auto status = handlers.Register(kintsugi::HandlerKind::kStop, DoNothing, nullptr); !status.ok()) {
    return Fail("Register", status);
  }
  std::printf("outside: ok, and a mistake reads: %s\n", twice.ToString().c_str());
  return 0;
}
