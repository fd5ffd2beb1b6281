#include "tests/inproc/collective.h"

namespace kintsugi::inproc {

Status Group::AllReduceSum(int rank, std::vector<float>* data) {
  std::unique_lock lock(mutex_);
  const size_t round = calls_[rank]++;
  if (rounds_.size() <= round) rounds_.resize(round + 1);
  if (aborted_by_.empty()) rounds_[round][rank] = *data;
  changed_.notify_all();
  const auto complete = [&] { return rounds_[round].size() == static_cast<size_t>(size_); };
  changed_.wait(lock, [&] { return complete() || !aborted_by_.empty(); });
  if (!complete()) {
    lock.unlock();
    return AbortedStatus(rank);
  }
  std::fill(data->begin(), data->end(), 0.0f);
  for (const auto& [member, values] : rounds_[round])
    for (size_t i = 0; i < values.size(); ++i) (*data)[i] += values[i];
  return Status::Ok();
}

Status Group::Barrier(int rank) {
  std::vector<float> nothing;
  return AllReduceSum(rank, &nothing);
}

void Group::Abort(int rank) {
  {
    std::lock_guard lock(mutex_);
    aborted_by_.insert(rank);
  }
  changed_.notify_all();
}

bool Group::aborted() const {
  std::lock_guard lock(mutex_);
  return !aborted_by_.empty();
}

Status Group::AbortedStatus(int rank) const {
  std::lock_guard lock(mutex_);
  if (aborted_by_.count(rank)) return {StatusCode::kCancelled, "the collective was aborted"};
  return {StatusCode::kCommFailure, "a peer left the collective"};
}

std::shared_ptr<Group> Hub::Of(Generation generation) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Group>& group = groups_[generation];
  if (!group) group = std::make_shared<Group>(size_);
  return group;
}

}  // namespace kintsugi::inproc
