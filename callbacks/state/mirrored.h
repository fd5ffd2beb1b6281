// Mirrored objects as they are kept and handed on: bytes that are shared where they did not change, so that what stays as
// it was is neither copied, nor sent, nor written again.
//
// Threads: values; the bytes are constant once they are shared.
// Errors: SplitMirrored: kDataLoss, the bytes are no frames.
// Invariants: objects of a rank are ascending by key, each once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi {

using SharedBytes = std::shared_ptr<const std::vector<uint8_t>>;

struct MirroredObject {
  std::string key;
  SharedBytes bytes;
};
using MirroredObjects = std::vector<MirroredObject>;

// Of a rank, as somebody knows them at one step.
struct RankObjects {
  Rank rank;
  MirroredObjects objects;
};

// A rank that comes to a live run can have such an object from any of those that are there, or works it out.
inline bool IsTakenFromAnybody(TakeOver take_over) {
  return take_over == TakeOver::kRankZero || take_over == TakeOver::kDerived;
}

// The frames of StateRegistry::CaptureMirrored, and the way back.
KINTSUGI_EXPORT std::vector<uint8_t> JoinMirrored(const MirroredObjects& objects);
KINTSUGI_EXPORT Result<MirroredObjects> SplitMirrored(const std::vector<uint8_t>& bytes);
// The same objects; what has the bytes that it had in `before` shares them.
KINTSUGI_EXPORT MirroredObjects ShareUnchanged(MirroredObjects objects, const MirroredObjects& before);

}  // namespace kintsugi
