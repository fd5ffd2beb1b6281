// What stands behind the C ABI's opaque types, and the edge that every function passes.
//
// Threads: as kintsugi.h says of each call.
// Ownership: a handle owns its agent.
// Errors: exceptions (of an allocation, say) become KINTSUGI_INTERNAL here and go no further.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#define KINTSUGI_C_ONLY
#include "integrations/c/kintsugi.h"
#undef KINTSUGI_C_ONLY
#include "callbacks/state/device_memory.h"
#include "callbacks/state/mirrored.h"
#include "integrations/cpp/reshard.h"
#include "replica/device/cuda_memory.h"
#include "runtime/agent.h"
#include "runtime/agent/internals.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/unique_fd.h"

// Opaque in C. Their fields are the C ABI's own.
struct kintsugi_error {
  kintsugi_code code;
  std::string text;
};

struct kintsugi_fence final : kintsugi::DeviceFence {
  kintsugi_fence(kintsugi_code (*function)(void*, int32_t*), void* its_context)
      : is_done(function), context(its_context) {}
  explicit kintsugi_fence(std::unique_ptr<kintsugi::CudaFence> its_event) : event(std::move(its_event)) {}
  kintsugi::Result<bool> IsDone() const override;

  // One or the other: the trainer's function, or an event of the device that was opened.
  kintsugi_code (*const is_done)(void* context, int32_t* done) = nullptr;
  void* const context = nullptr;
  const std::unique_ptr<kintsugi::CudaFence> event;
};

struct kintsugi_bytes {
  std::vector<uint8_t> bytes;
};

struct kintsugi_agent {
  // Large values that were set: after a lost connection all of them are told again at once.
  struct LargeValues {
    kintsugi::Mutex mutex;
    uint64_t generation KINTSUGI_GUARDED_BY(mutex) = 0;
    size_t bytes KINTSUGI_GUARDED_BY(mutex) = 0;
    uint64_t count KINTSUGI_GUARDED_BY(mutex) = 0;
  };
  struct StopFunction {
    void (*function)(void* context, uint64_t generation);
    void* context;
  };
  // A mirrored object's newest bytes, and of which step they are.
  struct Object {
    std::string key;
    uint64_t step = 0;
    bool put = false;
    kintsugi::SharedBytes bytes = std::make_shared<const std::vector<uint8_t>>();
    kintsugi_take_over take_over = KINTSUGI_TAKE_OVER_UNSAID;
    kintsugi_code (*take_over_all)(void*, const kintsugi_saved_object*, size_t, kintsugi_bytes*) = nullptr;
    void* take_over_context = nullptr;
  };

  uint32_t forks = 0;               // of this process and its ancestors, when it joined
  std::string why;                  // of the newest marker that failed
  std::vector<StopFunction> stops;  // constant once the guard has begun
  kintsugi::UniqueFd stop_fd;
  std::map<std::string, std::unique_ptr<Object>> objects;
  std::shared_ptr<kintsugi::CudaMemory> device;  // before the fences: their events are of it
  std::string missing;                           // of its parts
  std::vector<std::unique_ptr<kintsugi_fence>> fences;
  kintsugi_code (*gate)(void* context, uint64_t step) = nullptr;
  void* gate_context = nullptr;
  LargeValues large_values;
  std::atomic<uint64_t> store_operations{0};  // so many ids were given out
  kintsugi::GuardTask task;                   // the newest
  // What it points to.
  std::vector<int32_t> partners, fault_ranks, replaced_ranks, crew;
  std::vector<std::vector<int32_t>> ranks_of;  // of each move, then of each entry
  std::vector<kintsugi_move> moves;
  std::vector<kintsugi_save_entry> entries;
  std::atomic<bool> in_task{false};
  std::map<std::vector<int32_t>, std::unique_ptr<kintsugi::ReshardGroup>> reshards;  // by ranks; none: all
  std::string unread, unfilled, notes;                                               // of the newest
  std::vector<uint8_t> object_of;                                                    // kintsugi_get_object_of's newest
  std::unique_ptr<kintsugi::Agent> agent;  // last: its threads use what is above until it is destroyed
};

struct kintsugi_store {
  kintsugi_agent* owner = nullptr;
  std::unique_ptr<kintsugi::Store> store;
  uint64_t generation = 0;
};

namespace kintsugi::c {

// The two code enums agree number by number (error.cc proves it).
inline kintsugi_code CodeOf(const Status& status) { return static_cast<kintsugi_code>(status.code()); }

// Leaves an error object for a status that is not ok.
kintsugi_code Answer(const Status& status, kintsugi_error** error);

// How often this process and its ancestors have forked since the library was first used.
uint32_t Forks();

// A secret from memory travels as a descriptor, as every other does.
Result<UniqueFd> SecretFile(const void* bytes, size_t size);
// Hands lines to a function of the caller's.
std::shared_ptr<LogSink> FunctionLog(void (*function)(void*, kintsugi_log_level, const char*), void* context);

inline bool IsForked(const kintsugi_agent* agent) { return agent->forks != Forks(); }
Status ForkedStatus();

// What a structure is given back as: no more of it than the caller knows. `given` is as TakeStruct saw it.
template <typename T>
void GiveStruct(T told, T* given) {
  told.size = given->size;
  std::memcpy(static_cast<void*>(given), &told, std::min(given->size, sizeof(T)));
}

// Runs `function` (a Status) at the edge: refuses a null agent and a forked child, stops exceptions.
template <typename Function>
Status AtEdge(const kintsugi_agent* agent, const Function& function) {
  if (!agent) return {StatusCode::kInvalidArgument, "the agent is NULL"};
  if (IsForked(agent)) return ForkedStatus();
  try {
    return function();
  } catch (const std::exception& e) {
    return {StatusCode::kInternal, e.what()};
  } catch (...) {
    return {StatusCode::kInternal, "something that is no std::exception"};
  }
}

// Something that a call needs and the caller has passed as NULL.
inline Status IsNull(const char* call, const char* what) {
  return {StatusCode::kInvalidArgument, std::string(call) + ": " + what + " is NULL"};
}
// An array that is NULL where elements were counted.
inline Status CheckArray(const char* call, const char* what, const void* elements, size_t count) {
  if (elements || count == 0) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          std::string(call) + ": " + what + " is NULL where " + std::to_string(count) + " were counted"};
}

// The tensor as the library has it; kInvalidArgument names it.
Result<ShardedTensor> TensorFrom(const kintsugi_tensor* given, const Agent& agent);

// A structure of the caller's, as this library knows it: what the caller does not know is zero.
template <typename T>
Status TakeStruct(const T* given, const char* name, T* taken) {
  if (!given) return {StatusCode::kInvalidArgument, std::string(name) + " is NULL"};
  const size_t size = given->size;
  if (size < sizeof size || size > (size_t{1} << 16))
    return {StatusCode::kInvalidArgument,
            std::string(name) + ".size is " + std::to_string(size) + ": set it to sizeof(" + name + ")"};
  *taken = T{};
  std::memcpy(static_cast<void*>(taken), given, std::min(size, sizeof(T)));
  return Status::Ok();
}

}  // namespace kintsugi::c
