// WindowPlan: the tensor segments of an outline, cut into windows, as one proven plan (private to this folder).
//
// What: each window is a box whose elements lie behind one another in its segment, of at most `window_bytes` where one
// element is not longer. Fill gives a window's bytes.
// Errors: the plan's, with the key.
// Threads: Fill from any thread.
// Ownership: refers to the catalog.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "replica/aoa/engine.h"
#include "replica/formats/format.h"
#include "replica/plan/renamed_plan.h"
#include "replica/reshard/fill.h"
#include "runtime/base/check.h"

namespace kintsugi::formats {

// A box of a tensor to be read, whole.
struct WantedBox {
  uint32_t tensor = 0;
  layout::Box box;
};

class WindowPlan {
 public:
  static Result<std::unique_ptr<WindowPlan>> Make(const Content& tensors, std::span<const WantedBox> wanted,
                                                  const Catalog& source, const aoa::Engine* engine,
                                                  uint64_t window_bytes);
  WindowPlan(const WindowPlan&) = delete;

  // The windows of wanted box `number`, in order.
  uint32_t first_window(uint32_t number) const {
    KINTSUGI_CHECK(size_t{number} + 1 < first_.size(),
                   "wanted box " + std::to_string(number) + " of " + std::to_string(first_.size() - 1));
    return first_[number];
  }
  uint32_t end_window(uint32_t number) const { return first_[number + 1]; }
  uint64_t BytesOf(uint32_t window) const;
  const layout::Box& BoxOf(uint32_t window) const {
    KINTSUGI_CHECK(window < windows_.size(), NoWindow(window));
    return windows_[window].box;
  }
  uint64_t window_bytes_max() const { return bytes_max_; }
  // In `buffer`, or where they lie in a source.
  Result<const uint8_t*> Fill(uint32_t window, std::span<uint8_t> buffer) const {
    KINTSUGI_CHECK(window < windows_.size() && filler_, NoWindow(window));
    KINTSUGI_CHECK(BytesOf(window) <= buffer.size(), "window " + std::to_string(window) + " of " +
                                                         std::to_string(BytesOf(window)) + " bytes for a buffer of " +
                                                         std::to_string(buffer.size()));
    return filler_->Fill(numbered_.number_of[window], buffer);
  }

 private:
  WindowPlan() = default;
  std::string NoWindow(uint32_t window) const {
    return "window " + std::to_string(window) + " of a plan of " + std::to_string(windows_.size());
  }

  Content tensors_;
  std::vector<NumberedPiece> windows_;
  std::vector<uint32_t> first_;  // by wanted box, and the end
  uint64_t bytes_max_ = 0;
  NumberedMetadata numbered_;
  plan::Plan plan_;
  plan::RenamedPlan renamed_;
  std::optional<reshard::Filler> filler_;
};

// A box cut into boxes of whole rows (or parts of one), in row-major order, each of at most `elements_max` elements.
std::vector<layout::Box> CutInOrder(const layout::Box& box, int64_t elements_max);

}  // namespace kintsugi::formats
