// RankPage: the page of words that this process shares with its launcher, or has for itself where there is none.
//
// Threads: opened before there is a second one; the words are atomics, and runtime/process/shared_page.h says who writes
// which.
// Ownership: the mapping.
// Errors: Open: the launcher's descriptor is no page.
#pragma once

#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/train_phase.h"
#include "runtime/core/held_state.h"
#include "runtime/process/shared_page.h"

namespace kintsugi {

class RankPage {
 public:
  // `launcher_fd`: the launcher's page; -1: there is none.
  Status Open(int launcher_fd) {
    KINTSUGI_CHECK(!page_, "the page is opened once");
    Result<SharedPage> page = launcher_fd >= 0 ? SharedPage::Open(launcher_fd) : SharedPage::CreateLocal();
    if (!page.ok()) return page.status().Annotate("the launcher's liveness page");
    page_.emplace(std::move(page).value());
    return Status::Ok();
  }

  SharedWords& words() { return page_->words(); }
  const SharedWords& words() const { return page_->words(); }
  // The step that the trainer has begun last.
  Step begun() const { return Step(UnpackProgress(words().progress.load(std::memory_order_seq_cst)).step); }
  // What the trainer's thread is about to do to registered memory: said before the first byte changes.
  void Mark(core::StateMark mark) { words().state_mark.store(static_cast<uint64_t>(mark), std::memory_order_seq_cst); }

 private:
  std::optional<SharedPage> page_;
};

}  // namespace kintsugi
