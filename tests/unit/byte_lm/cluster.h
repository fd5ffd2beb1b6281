// Cluster: a world of trainers, one thread each, joined by thread groups as the launcher would join processes.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "integrations/examples/byte_lm/trainer.h"
#include "runtime/base/random.h"
#include "tests/unit/byte_lm/thread_collectives.h"

namespace kintsugi::byte_lm {

// A few thousand letters, always the same.
inline const TextData& Text() {
  static const TextData text = TextData::FromBytes([] {
    std::string bytes;
    Random random(9);
    for (int i = 0; i < 6000; ++i) bytes.push_back(static_cast<char>('a' + random.Below(12)));
    return bytes;
  }());
  return text;
}

// A network and a schedule that take a fraction of a second.
inline TrainerOptions TinyOptions() {
  TrainerOptions options;
  options.model.context = 16;
  options.model.layers = 2;
  options.model.heads = 2;
  options.model.width = 16;
  options.train.steps = 8;
  options.train.warmup_steps = 2;
  options.train.batch = 2;
  return options;
}

// One whole step, every stage.
inline Status RunStep(Trainer& trainer, Step step) {
  KINTSUGI_RETURN_IF_ERROR(trainer.Forward(step));
  KINTSUGI_RETURN_IF_ERROR(trainer.Backward());
  KINTSUGI_RETURN_IF_ERROR(trainer.SyncGradients());
  KINTSUGI_RETURN_IF_ERROR(trainer.SyncNorm());
  for (size_t i = 0; i < trainer.piece_count(); ++i) trainer.UpdatePiece(i);
  return trainer.SyncParameters();
}

class Cluster {
 public:
  Cluster(TrainerOptions options, const TextData& text, int world_size, int tp_size, int replicas) {
    for (int rank = 0; rank < world_size; ++rank) {
      options.layout = RankLayout::Of(rank, world_size, tp_size, replicas).value();
      trainers_.push_back(std::move(Trainer::Create(options, text)).value());
      Trainer& trainer = *trainers_.back();
      trainer.SetGroups({&Member(rank, "dp", options.layout.DataParallelGroup()),
                         &Member(rank, "tp", options.layout.TensorParallelGroup()),
                         &Member(rank, "shard", options.layout.ShardGroup())});
    }
  }

  Trainer& operator[](int rank) { return *trainers_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(trainers_.size()); }
  ThreadGroup& group(const std::string& kind, const std::vector<int>& ranks) { return *groups_.at({kind, ranks}); }

  // Runs `work` for every rank on a thread of its own; returns each rank's status.
  std::vector<Status> Each(const std::function<Status(Trainer&)>& work) {
    std::vector<Status> statuses(trainers_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < trainers_.size(); ++rank) {
      threads.emplace_back([&, rank] { statuses[rank] = work(*trainers_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  // Steps first .. last on all ranks; the losses that rank 0 saw, or the first failure.
  Result<std::vector<double>> Train(uint64_t first, uint64_t last) {
    std::vector<double> losses;
    const std::vector<Status> statuses = Each([&](Trainer& trainer) {
      for (uint64_t step = first; step <= last; ++step) {
        KINTSUGI_RETURN_IF_ERROR(RunStep(trainer, Step(step)));
        if (&trainer == trainers_[0].get()) losses.push_back(trainer.loss());
      }
      return Status::Ok();
    });
    for (const Status& status : statuses) KINTSUGI_RETURN_IF_ERROR(status);
    return losses;
  }

 private:
  Collectives& Member(int rank, const std::string& kind, const std::vector<int>& ranks) {
    std::unique_ptr<ThreadGroup>& group = groups_[{kind, ranks}];
    if (group == nullptr) group = std::make_unique<ThreadGroup>(static_cast<int>(ranks.size()));
    const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return group->member(static_cast<int>(place));
  }

  std::map<std::pair<std::string, std::vector<int>>, std::unique_ptr<ThreadGroup>> groups_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

}  // namespace kintsugi::byte_lm
