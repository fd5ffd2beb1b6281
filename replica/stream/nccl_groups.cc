#include "replica/stream/nccl_groups.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "replica/stream/cuda_driver.h"
#include "replica/stream/store_wait.h"

namespace kintsugi {
namespace {

Status CheckGroup(const NcclGroup& group, const std::map<std::string, size_t>& before) {
  const auto refuse = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "NCCL group '" + group.name + "': " + what);
  };
  if (group.name.empty() || before.count(group.name) > 0) return refuse("a group needs a name that no other has");
  if (std::set<Rank>(group.members.begin(), group.members.end()).size() != group.members.size())
    return refuse("a rank is in it twice");
  return Status::Ok();
}

std::string KeyOf(const NcclGroupsOptions& options, const NcclGroup& group, int id) {
  return "nccl/" + options.generation.ToString() + "/" + group.name + "/" + std::to_string(id);
}

int IdsOf(const NcclApi& api, const NcclGroup& group, int ranks_per_id) {
  const auto ranks = static_cast<int>(group.members.size());
  return api.init_rank_scalable ? (ranks + ranks_per_id - 1) / ranks_per_id : 1;
}

}  // namespace

Result<std::unique_ptr<NcclGroups>> NcclGroups::Connect(Store& store, std::shared_ptr<const NcclApi> api,
                                                        std::shared_ptr<CudaDevice> device,
                                                        const std::vector<NcclGroup>& groups,
                                                        const NcclGroupsOptions& options) {
  if (options.ranks_per_id < 1)
    return Status(StatusCode::kInvalidArgument,
                  "ranks_per_id is " + std::to_string(options.ranks_per_id) + "; at least 1");
  KINTSUGI_RETURN_IF_ERROR(device->Bind());
  std::map<std::string, size_t> index;
  std::vector<const NcclGroup*> mine;
  std::vector<NcclMembership> memberships;
  for (const NcclGroup& group : groups) {
    const auto at = std::find(group.members.begin(), group.members.end(), options.self);
    if (at == group.members.end()) continue;
    KINTSUGI_RETURN_IF_ERROR(CheckGroup(group, index));
    index[group.name] = mine.size();
    mine.push_back(&group);
    memberships.push_back(
        {.ranks = static_cast<int>(group.members.size()), .rank = static_cast<int>(at - group.members.begin())});
  }
  // First all ids that this rank makes, then all that it needs: nobody waits in a circle.
  for (size_t i = 0; i < mine.size(); ++i) {
    if (memberships[i].rank % options.ranks_per_id != 0) continue;
    const int id_number = memberships[i].rank / options.ranks_per_id;
    if (id_number >= IdsOf(*api, *mine[i], options.ranks_per_id)) continue;
    NcclUniqueId id;
    if (const int code = api->get_unique_id(&id); code != kNcclSuccess)
      return Status(StatusCode::kUnavailable, api->Describe("ncclGetUniqueId", code, nullptr));
    const auto* bytes = reinterpret_cast<const uint8_t*>(&id);
    KINTSUGI_RETURN_IF_ERROR(store.Set(KeyOf(options, *mine[i], id_number), {bytes, bytes + sizeof(id)}));
  }
  const auto stopped = [&] { return options.cancel && options.cancel->cancelled(); };
  for (size_t i = 0; i < mine.size(); ++i)
    for (int id_number = 0; id_number < IdsOf(*api, *mine[i], options.ranks_per_id); ++id_number) {
      const std::string key = KeyOf(options, *mine[i], id_number);
      KINTSUGI_ASSIGN_OR_RETURN(const auto bytes, GetUnlessStopped(store, key, options.deadline, stopped));
      if (bytes.size() != sizeof(NcclUniqueId))
        return Status(StatusCode::kDataLoss,
                      "'" + key + "' holds " + std::to_string(bytes.size()) + " bytes, not an NCCL id");
      std::memcpy(&memberships[i].ids.emplace_back(), bytes.data(), sizeof(NcclUniqueId));
    }
  auto communicators =
      NcclCommunicators::Init(api, device, memberships, {options.deadline, options.cancel, options.ctas_max});
  if (!communicators.ok())
    return communicators.status().Annotate("NCCL groups of generation " + options.generation.ToString() + " on rank " +
                                           options.self.ToString());
  return std::unique_ptr<NcclGroups>(new NcclGroups(std::move(index), std::move(communicators).value()));
}

Result<size_t> NcclGroups::Find(const std::string& name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return found->second;
  return Status(StatusCode::kNotFound, "this rank is in no NCCL group '" + name + "'");
}

}  // namespace kintsugi
