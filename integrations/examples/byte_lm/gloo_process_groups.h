// The trainer's groups over Gloo, for state in host memory.
//
// Threads: as process_groups.h.
// Ownership: one device for all groups of a generation.
#pragma once

#include <memory>
#include <mutex>

#include "integrations/examples/byte_lm/process_groups.h"
#include "integrations/examples/byte_lm/rank_layout.h"
#include "replica/stream/gloo_group.h"

namespace kintsugi::byte_lm {

class GlooProcessGroups final : public ProcessGroups {
 public:
  explicit GlooProcessGroups(const RankLayout& layout) : layout_(layout) {}
  ~GlooProcessGroups() override { End(); }

  Status Connect(HandlerContext& call) override;
  Status Destroy(TimePoint) override {
    End();
    return Status::Ok();
  }
  void Abort() override;
  void MoveTo(const RankLayout& layout) override { layout_ = layout; }
  Groups groups() override;
  Status Barrier() override;

 private:
  class GlooCollectives;
  struct Connected;
  void End();

  RankLayout layout_;
  std::shared_ptr<Connected> connected_;
  std::mutex mutex_;   // guards what Abort uses
  GlooDevice device_;  // of the newest generation
};

}  // namespace kintsugi::byte_lm
