#include "replica/resume/take_over.h"

#include <algorithm>
#include <set>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"

namespace kintsugi::resume {
namespace {

using Objects = std::map<std::string, std::vector<uint8_t>>;

Status Refuse(const std::string& key, const std::string& what) {
  return {StatusCode::kFailedPrecondition, "object '" + key + "' " + what};
}

// What each rank saved, asked for once.
class Saved {
 public:
  Saved(const std::vector<Rank>& ranks, const SavedBy& saved_by) : ranks_(ranks), saved_by_(saved_by) {
    KINTSUGI_CHECK(std::is_sorted(ranks.begin(), ranks.end()), "those who saved are listed in order");
  }

  Result<const std::vector<uint8_t>*> Of(Rank rank, const std::string& key) {
    if (!std::binary_search(ranks_.begin(), ranks_.end(), rank))
      return Refuse(key, "is to come from rank " + rank.ToString() +
                             ", which saved nothing: the checkpoint has ranks 0 to " +
                             (ranks_.empty() ? "none" : ranks_.back().ToString()) +
                             "; say another TakeOver where the object is registered");
    KINTSUGI_ASSIGN_OR_RETURN(const Objects* const objects, ObjectsOf(rank));
    const auto found = objects->find(key);
    if (found == objects->end())
      return Refuse(key, "is mirrored now, but rank " + rank.ToString() + " saved none of that name");
    return &found->second;
  }
  // Who of them saved it first. A cell of a grid lies where the layout that saved had put it.
  Result<const std::vector<uint8_t>*> OfAnybody(const std::string& key) {
    std::set<std::string> cells;
    const std::string grid(GridName(key));
    for (const Rank rank : ranks_) {
      KINTSUGI_ASSIGN_OR_RETURN(const Objects* const objects, ObjectsOf(rank));
      if (const auto found = objects->find(key); found != objects->end()) return &found->second;
      for (const auto& [other, bytes] : *objects)
        if (GridName(other) == grid) cells.insert(other);
    }
    return Refuse(key,
                  "was saved by no rank: " +
                      (cells.empty() ? "nothing of '" + grid + "' is in the checkpoint"
                                     : "the checkpoint has '" + *cells.begin() + "' to '" + *cells.rbegin() +
                                           "', and cells of a grid are neither cut nor joined: resume with as many "
                                           "along each axis, or say another TakeOver where it is registered"));
  }
  const std::vector<Rank>& ranks() const { return ranks_; }

 private:
  Result<const Objects*> ObjectsOf(Rank rank) {
    auto at = read_.find(rank);
    if (at == read_.end()) {
      KINTSUGI_ASSIGN_OR_RETURN(Objects objects, saved_by_(rank));
      at = read_.emplace(rank, std::move(objects)).first;
    }
    return &at->second;
  }

  const std::vector<Rank>& ranks_;
  const SavedBy& saved_by_;
  std::map<Rank, Objects> read_;
};

Result<std::vector<uint8_t>> BytesOf(const ShardedObject& object, Rank self, Saved& saved) {
  std::vector<uint8_t> bytes;
  switch (object.take_over) {
    case TakeOver::kSameRank:
    case TakeOver::kRankZero: {
      KINTSUGI_ASSIGN_OR_RETURN(const auto* found,
                                saved.Of(object.take_over == TakeOver::kRankZero ? Rank(0) : self, object.key));
      return *found;
    }
    case TakeOver::kDerived:
      object.capture(object.context, &bytes);
      return bytes;
    case TakeOver::kOwn: {
      std::vector<SavedObject> all;
      for (const Rank rank : saved.ranks()) {
        KINTSUGI_ASSIGN_OR_RETURN(const auto* found, saved.Of(rank, object.key));
        all.push_back({rank, found->data(), found->size()});
      }
      const Status taken = object.take_over_all(object.context, all, &bytes).Annotate("object '" + object.key + "'");
      // By the trainer's word: this checkpoint does not fit it, which is no wrong argument of anybody's.
      if (taken.code() == StatusCode::kInvalidArgument) return Status(StatusCode::kFailedPrecondition, taken.message());
      KINTSUGI_RETURN_IF_ERROR(taken);
      return bytes;
    }
    case TakeOver::kCell: {
      KINTSUGI_ASSIGN_OR_RETURN(const auto* found, saved.OfAnybody(object.key));
      return *found;
    }
    case TakeOver::kUnsaid:
      break;
  }
  return Status(StatusCode::kInternal,
                "object '" + object.key + "' is taken over in no way");  // CheckTakeOver comes first
}

}  // namespace

Status CheckTakeOver(const StateRegistry& registry) {
  std::string others;
  const std::string* first = nullptr;
  for (const auto& [key, object] : registry.objects()) {
    if (object.take_over != TakeOver::kUnsaid) continue;
    if (first)
      others += (others.empty() ? " (nor does '" : ", '") + key + "'";
    else
      first = &key;
  }
  if (!first) return Status::Ok();
  return Refuse(
      *first,
      "does not say how it goes on in another layout or with other ranks" + others + (others.empty() ? "" : ")") +
          ": say same rank, rank 0, derived, cell or a function where it is registered (ShardedObject::take_over; "
          "in C kintsugi_object.take_over, in Python take_over=)");
}

Result<std::vector<uint8_t>> TakeOverObjects(const StateRegistry& registry, Rank self, const std::vector<Rank>& ranks,
                                             const SavedBy& saved_by) {
  KINTSUGI_RETURN_IF_ERROR(CheckTakeOver(registry));
  Saved saved(ranks, saved_by);
  std::vector<uint8_t> all;
  for (const auto& [key, object] : registry.objects()) {
    if (object.kind != ObjectKind::kMirrored) continue;
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, BytesOf(object, self, saved));
    AppendMirrored(key, bytes, &all);
  }
  return all;
}

}  // namespace kintsugi::resume
