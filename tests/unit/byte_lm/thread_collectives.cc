#include "tests/unit/byte_lm/thread_collectives.h"

#include <cstring>

namespace kintsugi::byte_lm {

class ThreadGroup::Member final : public Collectives {
 public:
  Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_.size_; }

  Status AllReduceSum(float* data, size_t count) override {
    KINTSUGI_RETURN_IF_ERROR(Count());
    group_.buffers_[static_cast<size_t>(rank_)] = data;
    KINTSUGI_RETURN_IF_ERROR(group_.Meet());
    if (rank_ == 0) {
      group_.sum_.assign(group_.buffers_[0], group_.buffers_[0] + count);
      for (size_t r = 1; r < group_.buffers_.size(); ++r) {
        for (size_t i = 0; i < count; ++i) group_.sum_[i] += group_.buffers_[r][i];
      }
    }
    KINTSUGI_RETURN_IF_ERROR(group_.Meet());
    std::memcpy(data, group_.sum_.data(), count * sizeof(float));
    return group_.Meet();
  }

  Status AllGather(const float* mine, size_t count_each, float* all) override {
    KINTSUGI_RETURN_IF_ERROR(Count());
    group_.sources_[static_cast<size_t>(rank_)] = mine;
    KINTSUGI_RETURN_IF_ERROR(group_.Meet());
    for (size_t r = 0; r < group_.sources_.size(); ++r) {
      float* target = all + r * count_each;
      if (target != group_.sources_[r]) std::memcpy(target, group_.sources_[r], count_each * sizeof(float));
    }
    return group_.Meet();
  }

 private:
  Status Count() {
    if (calls_++ == group_.break_at_call_) group_.Break();
    return Status::Ok();
  }

  ThreadGroup& group_;
  const int rank_;
  int calls_ = 0;
};

ThreadGroup::ThreadGroup(int size)
    : size_(size), buffers_(static_cast<size_t>(size)), sources_(static_cast<size_t>(size)) {
  for (int rank = 0; rank < size; ++rank) members_.push_back(std::make_unique<Member>(*this, rank));
}

ThreadGroup::~ThreadGroup() = default;

Collectives& ThreadGroup::member(int rank) { return *members_[static_cast<size_t>(rank)]; }

void ThreadGroup::Break() {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  moved_.notify_all();
}

Status ThreadGroup::Meet() {
  std::unique_lock lock(mutex_);
  const long round = round_;
  if (!broken_ && ++waiting_ == size_) {
    waiting_ = 0;
    ++round_;
    moved_.notify_all();
  }
  moved_.wait(lock, [&] { return broken_ || round_ != round; });
  if (broken_) return Status(StatusCode::kCommFailure, "the test broke the group");
  return Status::Ok();
}

}  // namespace kintsugi::byte_lm
