// NcclGroups: the communicators of a trainer's layout for one generation, for its rebuild_group handler.
//
// What: every group that a rank is in (tensor, data, expert, pipeline parallel, world) becomes one communicator; all of
// them are created in one grouped init under one deadline. Unique ids go through the control plane's store: the first
// member of a group makes one; where NCCL has the scalable init (2.23) one id serves kNcclRanksPerId ranks, made by the
// first of these. All ranks name their groups in one order, that of `groups`. A rebuild_group handler drops the old
// NcclGroups first (its end aborts them together, in one group), then makes new ones.
// Threads: as nccl_communicators.h.
// Errors: kInvalidArgument names the group; the store's; those of NcclCommunicators::Init.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "callbacks/handlers/store.h"
#include "replica/stream/nccl_communicators.h"
#include "runtime/base/ids.h"

namespace kintsugi {

inline constexpr int kNcclRanksPerId = 128;

struct NcclGroup {
  std::string name;           // unique within the layout, "tp3"
  std::vector<Rank> members;  // in the order of their ranks in the communicator
};

struct NcclGroupsOptions {
  Generation generation;
  Rank self;
  TimePoint deadline;
  CancelToken* cancel = nullptr;
  int ctas_max = 0;  // NCCL's choice: these are the training's own
  int ranks_per_id = kNcclRanksPerId;
};

class KINTSUGI_EXPORT NcclGroups {
 public:
  // `groups` are those of the whole layout or of this rank alone; those that it is not in are left out.
  static Result<std::unique_ptr<NcclGroups>> Connect(Store& store, std::shared_ptr<const NcclApi> api,
                                                     std::shared_ptr<CudaDevice> device,
                                                     const std::vector<NcclGroup>& groups,
                                                     const NcclGroupsOptions& options);

  // The index of a group in communicators(); kNotFound where this rank is in no such group.
  Result<size_t> Find(const std::string& name) const;
  NcclCommunicators& communicators() { return *communicators_; }
  // From a stop handler: returns at once.
  void Abort() { communicators_->Abort(); }

 private:
  NcclGroups(std::map<std::string, size_t> index, std::unique_ptr<NcclCommunicators> communicators)
      : index_(std::move(index)), communicators_(std::move(communicators)) {}

  const std::map<std::string, size_t> index_;
  const std::unique_ptr<NcclCommunicators> communicators_;
};

}  // namespace kintsugi
