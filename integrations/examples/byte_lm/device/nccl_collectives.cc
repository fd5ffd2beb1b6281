#include "integrations/examples/byte_lm/device/nccl_collectives.h"

#include <algorithm>

namespace kintsugi::byte_lm::device {
namespace {

// Of a call that only enqueues; the first of a communicator also connects.
constexpr auto kCallLimit = std::chrono::minutes(2);

}  // namespace

template <typename PartOf>
Status NcclCollectives::Exchange(const char* what, const PartOf& part_of) {
  KINTSUGI_RETURN_IF_ERROR(compute_.status());
  KINTSUGI_RETURN_IF_ERROR(compute_.stream().device().Bind());
  void* const stream = compute_.stream().handle();
  return communicators_.Call(
      index_, what,
      [&](NcclComm comm) {
        int first = kNcclSuccess;
        const auto keep = [&first](int result) {
          if (first == kNcclSuccess && result != kNcclInProgress) first = result;
        };
        api_->group_start();
        for (int peer = 0; peer < size_; ++peer) {
          if (peer == rank_) continue;
          const Part part = part_of(peer);
          if (part.send_count > 0)
            keep(api_->send(part.send, part.send_count * sizeof(float), kNcclInt8, peer, comm, stream));
          if (part.receive_count > 0)
            keep(api_->receive(part.receive, part.receive_count * sizeof(float), kNcclInt8, peer, comm, stream));
        }
        const int ended = api_->group_end();
        return first != kNcclSuccess ? first : ended;
      },
      SteadyClock::SteadyNow() + kCallLimit);
}

Status NcclCollectives::AllReduceSum(float* data, size_t count) {
  if (size_ == 1 || count == 0) return Status::Ok();
  const auto ranks = static_cast<size_t>(size_);
  // Equal shares on whole cache lines; the last ones may be shorter, or empty.
  constexpr size_t kLine = kAlignmentBytes / sizeof(float);
  const size_t each = ((count + ranks - 1) / ranks + kLine - 1) / kLine * kLine;
  const auto begin_of = [&](int rank) { return std::min(count, each * static_cast<size_t>(rank)); };
  const auto size_of = [&](int rank) { return begin_of(rank + 1) - begin_of(rank); };
  if (others_.size() < each * (ranks - 1)) others_ = ComputeArray<float>(compute_, each * (ranks - 1));
  float* const others = others_.data();
  const size_t mine = size_of(rank_);
  KINTSUGI_RETURN_IF_ERROR(Exchange("the parts of a sum", [&](int peer) {
    const auto place = static_cast<size_t>(peer < rank_ ? peer : peer - 1);
    return Part{data + begin_of(peer), size_of(peer), others + place * each, mine};
  }));
  float* const share = data + begin_of(rank_);
  compute_.Launch(
      RankSumKernel{{mine}, static_cast<uint32_t>(size_), static_cast<uint32_t>(rank_), each, others, share});
  return Exchange("the shares of a sum", [&](int peer) {
    return Part{share, mine, data + begin_of(peer), size_of(peer)};
  });
}

Status NcclCollectives::AllGather(const float* mine, size_t count_each, float* all) {
  if (!compute_.stream().device().IsDeviceMemory(all)) return GatherHost(mine, count_each, all);
  compute_.Copy(count_each, mine, all + static_cast<size_t>(rank_) * count_each);
  return Exchange("a gather", [&](int peer) {
    return Part{mine, count_each, all + static_cast<size_t>(peer) * count_each, count_each};
  });
}

Status NcclCollectives::GatherHost(const float* mine, size_t count_each, float* all) {
  const size_t count = count_each * static_cast<size_t>(size_);
  if (staged_.size() < count) staged_ = ComputeArray<float>(compute_, count);
  float* const own = staged_.data() + static_cast<size_t>(rank_) * count_each;
  KINTSUGI_RETURN_IF_ERROR(compute_.status());
  compute_.Upload(own, mine, count_each * sizeof(float));
  KINTSUGI_RETURN_IF_ERROR(AllGather(own, count_each, staged_.data()));
  return compute_.Download(all, staged_.data(), count * sizeof(float));
}

Status NcclCollectives::Barrier() {
  float mine = 0;
  std::vector<float> all(static_cast<size_t>(size_));
  return GatherHost(&mine, 1, all.data());
}

}  // namespace kintsugi::byte_lm::device
