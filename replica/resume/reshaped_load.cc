#include "replica/resume/reshaped_load.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "callbacks/state/key.h"
#include "callbacks/state/mirrored.h"
#include "replica/aoa/program_text.h"
#include "replica/formats/compare.h"
#include "replica/formats/format.h"
#include "replica/formats/values.h"
#include "replica/plan/aoa_tensors.h"
#include "replica/plan/planner.h"
#include "replica/plan/renamed_plan.h"
#include "replica/resume/block_reader.h"
#include "replica/resume/layouts.h"
#include "replica/resume/mib.h"
#include "replica/resume/take_over.h"
#include "replica/resume/target.h"
#include "replica/resume/threads.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"

namespace kintsugi::resume {
namespace {

using checkpoint::Loaded;
using checkpoint::LoadRequest;
using layout::Metadata;

constexpr size_t kKeysNamed = 8;
constexpr uint64_t kProgramBytesMax = 64ull << 20;

Status Misfit(const std::string& what) { return {StatusCode::kFailedPrecondition, what}; }

std::string Named(const std::vector<std::string>& keys) {
  std::string text;
  for (size_t i = 0; i < std::min(keys.size(), kKeysNamed); ++i) text += (i ? ", '" : "'") + keys[i] + "'";
  return keys.size() > kKeysNamed ? text + " and " + std::to_string(keys.size() - kKeysNamed) + " more" : text;
}

class Loader {
 public:
  Loader(const StateRegistry& registry, const LoadRequest& request, const ReshapeOptions& options, Agreement agreement)
      : registry_(registry), request_(request), options_(options), agreement_(agreement) {}

  Result<Loaded> Run() {
    // Whatever is wrong with one rank's part is known to all before any of them writes.
    const Status prepared = Prepare();
    KINTSUGI_RETURN_IF_ERROR(AgreeOn(prepared));
    KINTSUGI_CHECK(catalog_ && target_ && inflow_ && (plan_ || renamed_), "a rank that agreed is prepared");
    target_->ClearGaps();
    std::optional<checkpoint::ArrivedSums> arrived;
    if (!loaded_.info.manifest.tensor_sums.empty()) arrived.emplace(registry_);
    BlockReader reader(*catalog_, checkpoint::PosixFileSystem(), options_.buffer_bytes,
                       ThreadsOf(options_.threads, request_.world_size), arrived ? &*arrived : nullptr);
    KINTSUGI_RETURN_IF_ERROR(reader.Run(&*inflow_, [this] { return Poll(); }));
    KINTSUGI_RETURN_IF_ERROR(target_->Deliver(request_.deadline));
    // A trainer's own function may still touch its tensors: then what counts is the memory, once it has run.
    if (arrived && !RunsOwnCode()) loaded_.sums = arrived->Whole();
    loaded_.bytes += reader.bytes_read();
    KINTSUGI_RETURN_IF_ERROR(TakeObjects());
    Tell(reader);
    return std::move(loaded_);
  }

 private:
  Status Poll() const {
    if (request_.cancel && request_.cancel->cancelled())
      return {StatusCode::kCancelled, "a newer generation superseded the load"};
    if (SteadyClock::SteadyNow() < request_.deadline) return Status::Ok();
    return {StatusCode::kDeadlineExceeded, "the load's time ran out"};
  }

  Status Prepare() {
    const Status own = [this]() -> Status {
      KINTSUGI_RETURN_IF_ERROR(CheckTakeOver(registry_));
      formats::ReadOptions read;
      read.whole = false;
      read.checksums = true;
      read.skip_objects = true;  // what a run's objects are made of is in the safe subset
      read.poll = [this] { return Poll(); };
      KINTSUGI_ASSIGN_OR_RETURN(formats::Catalog catalog, formats::ReadCatalog(request_.path, "", read));
      catalog_ = std::make_unique<formats::Catalog>(std::move(catalog));
      KINTSUGI_RETURN_IF_ERROR(Identify());
      KINTSUGI_ASSIGN_OR_RETURN(ResumeTarget target, ResumeTarget::Of(registry_, request_.elsewhere, options_.other_shapes));
      target_ = std::make_unique<ResumeTarget>(std::move(target));
      return Status::Ok();
    }();
    if (options_.statements) return PrepareRenamed(own);
    KINTSUGI_RETURN_IF_ERROR(own);
    return PrepareSameNames();
  }

  // What was read, as a native manifest would say it; other formats know of a step at most.
  Status Identify() {
    if (catalog_->format() == "native") {
      KINTSUGI_ASSIGN_OR_RETURN(loaded_.info, checkpoint::ReadManifest(catalog_->path()));
      return Status::Ok();
    }
    loaded_.info.path = catalog_->path();
    loaded_.info.manifest.identity.step = Step(catalog_->step().value_or(0));
    loaded_.info.manifest.tensor_sums = catalog_->tensor_sums();
    return Status::Ok();
  }

  // What is not stored is known here; what nobody asks for, only over all ranks (AgreeOn).
  Status PrepareSameNames() {
    const Metadata& stored = catalog_->metadata();
    KINTSUGI_RETURN_IF_ERROR(FindUnderAliases());
    target_->Remove(NothingOf(stored));
    const auto verdict = JudgeStrictly(options_.strict, stored, target_->metadata());
    for (const layout::LayoutError& error : verdict.errors)
      if (error.code == layout::ErrorCode::kUnexpected)
        return Misfit("tensor '" + error.key + "' is registered, but is not in the checkpoint (" +
                      std::to_string(stored.keys.size()) +
                      " tensors); rename what is stored with --resume-aoa, or let it be with --resume-strict");
    unexpected_ = verdict.removed;
    target_->Remove(verdict.removed);
    TellHeld();
    auto made = plan::MakePlan(stored, target_->metadata(), {});
    if (!made.ok() && made.error().code == layout::ErrorCode::kStoredShape)
      return Misfit(made.error().message + "; to take what both have, and zeros: --resume-shapes '" + made.error().key +
                    "', or register it with allow_shape_mismatch");
    if (!made.ok()) return Misfit(made.error().message);
    plan_ = std::make_unique<plan::Plan>(std::move(made).value());
    KINTSUGI_RETURN_IF_ERROR(target_->Bind(stored, &bindings_));
    KINTSUGI_ASSIGN_OR_RETURN(reshard::Inflow inflow,
                              reshard::Inflow::Make(*plan_, stored, target_->metadata(), 0, bindings_));
    inflow_.emplace(std::move(inflow));
    return Status::Ok();
  }

  // Tensors without elements that who saved did not know of: nothing of them is missing.
  std::vector<std::string> NothingOf(const Metadata& stored) const {
    std::vector<std::string> names;
    for (const layout::KeyMeta& key : target_->metadata().keys)
      if (std::count(key.global_shape.begin(), key.global_shape.begin() + key.axes, 0) > 0 &&
          stored.Find(key.name).empty())
        names.push_back(key.name);
    return names;
  }

  // What this rank will hold as it is stored. An alias has no bytes, and no sum, of its own.
  void TellHeld() {
    std::map<std::string_view, const formats::CatalogTensor*> stored;
    for (const formats::CatalogTensor& tensor : catalog_->tensors()) stored[tensor.key] = &tensor;
    for (const auto& [name, tensor] : target_->tensors()) {
      const auto found = stored.find(name);
      if (found == stored.end()) continue;
      const formats::CatalogTensor& from = *found->second;
      loaded_.held[tensor->key] = from.alias_of.empty() ? from.key : from.alias_of;
    }
  }

  // The same through a program: where one stored tensor has but another name now.
  void TellHeldRenamed(const aoa::Engine& engine) {
    std::map<std::string_view, std::string_view> owner_of;
    for (const formats::CatalogTensor& tensor : catalog_->tensors())
      if (!tensor.alias_of.empty()) owner_of[tensor.key] = tensor.alias_of;
    for (const auto& [name, tensor] : target_->tensors()) {
      std::optional<std::string>& from = loaded_.held[tensor->key];
      aoa::IndexBox whole;
      for (const int64_t length : tensor->global_shape) whole.push_back({0, length});
      const auto pieces = engine.FindShardSources({name, whole, {}});
      if (!pieces.ok() || pieces->size() != 1) continue;
      const aoa::ShardSource& piece = pieces->front();
      if (!piece.steps.empty() || piece.source_box != whole || piece.target_box != whole) continue;
      const auto owner = owner_of.find(piece.source_key);
      from = owner == owner_of.end() ? piece.source_key : std::string(owner->second);
    }
  }

  // A tensor that is stored under another of its names is read from there. One that is stored under two of them, apart, must
  // be the same under both: what was not tied when it was saved would lose one of its two.
  Status FindUnderAliases() {
    if (!options_.aliases) return Status::Ok();
    const Metadata& stored = catalog_->metadata();
    for (const auto& [alias, key] : options_.aliases->all()) {
      if (stored.Find(alias).empty()) continue;
      if (stored.Find(key).empty()) {
        target_->ReadAs(key, alias);
        continue;
      }
      if (!layout::RaisesMissing(options_.strict)) continue;
      KINTSUGI_ASSIGN_OR_RETURN(const auto difference, formats::CompareWithin(*catalog_, key, alias));
      if (!difference) continue;
      return Misfit("'" + alias + "' is registered as another name of '" + key +
                    "', but the checkpoint has two tensors " + "under these names that differ (" + difference->left +
                    " and " + difference->right + "): register both, or take '" + key +
                    "' alone with --resume-strict raise_unexpected");
    }
    return Status::Ok();
  }

  // Stored keys under which nothing is left that was not read under another name.
  std::set<std::string_view> AlsoRead(const std::function<bool(const std::string&)>& is_read) const {
    std::map<std::string_view, std::string_view> owner_of;
    for (const formats::CatalogTensor& tensor : catalog_->tensors())
      if (!tensor.alias_of.empty()) owner_of[tensor.key] = tensor.alias_of;
    const auto owner = [&](std::string_view key) {
      const auto found = owner_of.find(key);
      return found == owner_of.end() ? key : found->second;
    };
    std::set<std::string_view> read;  // by owner
    for (const layout::KeyMeta& key : catalog_->metadata().keys)
      if (is_read(key.name)) read.insert(owner(key.name));
    if (options_.aliases && !options_.statements)
      for (const auto& [alias, key] : options_.aliases->all())
        if (read.count(owner(alias)) || read.count(owner(key))) read.insert({owner(alias), owner(key)});
    std::set<std::string_view> keys;
    for (const layout::KeyMeta& key : catalog_->metadata().keys)
      if (read.count(owner(key.name))) keys.insert(key.name);
    return keys;
  }

  Status PrepareRenamed(const Status& own) {
    KINTSUGI_ASSIGN_OR_RETURN(
        const Metadata all,
        AgreeOnLayouts("layouts", own.ok() ? target_->As(request_.self) : Result<Metadata>(own), agreement_));
    const Metadata& stored = catalog_->metadata();
    aoa::Options program;
    program.reverse = options_.reverse;
    program.allow_unexpected = !layout::RaisesUnexpected(options_.strict);
    const auto engine = aoa::Engine::Build(
        {*options_.statements, plan::TensorsOf(stored), plan::TensorsOf(all), program, std::nullopt, options_.macros});
    if (!engine.ok())
      return {StatusCode::kInvalidArgument, "the AOA program (--resume-aoa): " + engine.status().message()};
    if (layout::RaisesUnexpected(options_.strict) && !engine->dropped_states().empty())
      return Misfit(Named(engine->dropped_states()) +
                    ": registered, but neither the checkpoint nor the AOA program has a source for them; add a "
                    "statement, or let them be with --resume-strict");
    unread_ = engine->unread();
    program_notes_ = engine->notes();
    const auto also = AlsoRead([&](const std::string& key) {
      return !std::binary_search(engine->unread().begin(), engine->unread().end(), key);
    });
    std::erase_if(unread_, [&](const std::string& key) { return also.count(key) > 0; });
    if (layout::RaisesMissing(options_.strict) && !unread_.empty())
      return Misfit(Named(unread_) +
                    ": in the checkpoint, but the AOA program makes nothing of them; write 'NAME -> _' "
                    "for what is not needed, or let them be with --resume-strict");
    unexpected_ = engine->unexpected();
    unexpected_.insert(unexpected_.end(), engine->dropped_states().begin(), engine->dropped_states().end());
    auto made = plan::MakeRenamedPlan(stored, *engine, target_->metadata());
    if (!made.ok()) return Misfit(made.error().message);
    renamed_ = std::make_unique<plan::RenamedPlan>(std::move(made).value());
    TellHeldRenamed(*engine);
    if (const auto error = plan::CheckRenamed(*renamed_, stored, target_->metadata()))
      return error->ToStatus().Annotate("the plan is refused");
    KINTSUGI_RETURN_IF_ERROR(target_->BindRenamed(*renamed_, &bindings_));
    KINTSUGI_ASSIGN_OR_RETURN(reshard::Inflow inflow,
                              reshard::Inflow::Make(renamed_->plan, stored, renamed_->wanted, 0, bindings_));
    inflow_.emplace(std::move(inflow));
    return Status::Ok();
  }

  // That every rank can load; and, where names stay, which stored keys no rank asks for: a bit for each, in their
  // order.
  Status AgreeOn(const Status& prepared) {
    const auto mine = [&]() -> Result<Bytes> {
      KINTSUGI_RETURN_IF_ERROR(prepared);
      Bytes asked;
      if (options_.statements) return asked;
      const std::vector<layout::KeyMeta>& keys = catalog_->metadata().keys;
      asked.resize((keys.size() + 7) / 8);
      const auto read = AlsoRead([&](const std::string& key) { return !target_->metadata().Find(key).empty(); });
      for (size_t i = 0; i < keys.size(); ++i)
        if (read.count(keys[i].name)) asked[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
      return asked;
    };
    const auto join = [](const std::vector<Bytes>& all) -> Result<Bytes> {
      Bytes any = all[0];
      for (size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank].size() != any.size())
          return Misfit("ranks 0 and " + std::to_string(rank) + " do not see the same checkpoint");
        for (size_t i = 0; i < any.size(); ++i) any[i] |= all[rank][i];
      }
      return any;
    };
    KINTSUGI_ASSIGN_OR_RETURN(const Bytes asked, agreement_.Reach("prepared", mine(), join));
    if (options_.statements) return Status::Ok();
    const std::vector<layout::KeyMeta>& keys = catalog_->metadata().keys;
    for (size_t i = 0; i < keys.size(); ++i)
      if ((asked[i / 8] >> (i % 8) & 1) == 0) unread_.push_back(keys[i].name);
    if (layout::RaisesMissing(options_.strict) && !unread_.empty())
      return Misfit(Named(unread_) +
                    ": in the checkpoint, but registered by no rank; rename what is stored with "
                    "--resume-aoa, or let it be with --resume-strict raise_unexpected");
    return Status::Ok();
  }

  bool RunsOwnCode() const {
    const auto& objects = registry_.objects();
    return std::any_of(objects.begin(), objects.end(),
                       [](const auto& object) { return object.second.take_over == TakeOver::kOwn; });
  }

  // A cell is called alike by all ranks, so that it is of none; others of its grid are told where it is not there.
  bool IsOfWantedGrid(const std::string& key) const {
    const std::string_view grid = GridName(key);
    const auto& objects = registry_.objects();
    return !grid.empty() && std::any_of(objects.begin(), objects.end(), [&](const auto& object) {
      return object.second.take_over == TakeOver::kCell && GridName(object.first) == grid;
    });
  }

  Status TakeObjects() {
    if (!registry_.HasMirrored()) return Status::Ok();
    std::map<Rank, std::map<std::string, Bytes>> objects;
    for (const formats::CatalogObject& object : catalog_->objects()) {
      const auto [rank, key] = formats::SplitRankObjectKey(object.key);
      if (!rank && !IsOfWantedGrid(key)) continue;  // the writer of a foreign checkpoint has others of its own
      KINTSUGI_ASSIGN_OR_RETURN(const std::string bytes, formats::BytesOf(object));
      loaded_.bytes += bytes.size();
      objects[rank.value_or(Rank(0))][key] = Bytes(bytes.begin(), bytes.end());
    }
    KINTSUGI_RETURN_IF_ERROR(AddValues(&objects));
    std::vector<Rank> ranks;
    for (const auto& [rank, by_key] : objects) ranks.push_back(rank);
    const auto saved_by = [&](Rank rank) -> Result<std::map<std::string, Bytes>> {
      if (const auto found = objects.find(rank); found != objects.end()) return found->second;
      return Status(StatusCode::kNotFound, "no objects of rank " + rank.ToString());
    };
    KINTSUGI_ASSIGN_OR_RETURN(loaded_.mirrored, TakeOverObjects(registry_, request_.self, ranks, saved_by));
    return static_cast<int>(ranks.size()) == request_.world_size ? NoteOtherwise(objects) : Status::Ok();
  }

  // As many ranks as saved, of which nobody knows whether they stand as they stood: what goes on by its rule is not what
  // each of them had.
  Status NoteOtherwise(const std::map<Rank, std::map<std::string, Bytes>>& saved) {
    KINTSUGI_ASSIGN_OR_RETURN(const MirroredObjects taken, SplitMirrored(loaded_.mirrored));
    for (const MirroredObject& object : taken) {
      const bool is_rank_zeros = registry_.objects().at(object.key).take_over == TakeOver::kRankZero;
      const bool differs = std::any_of(saved.begin(), saved.end(), [&](const auto& of_rank) {
        const auto found = of_rank.second.find(object.key);
        return (is_rank_zeros || of_rank.first == request_.self) && found != of_rank.second.end() &&
               found->second != *object.bytes;
      });
      if (differs) otherwise_.push_back(object.key);
    }
    return Status::Ok();
  }

  // Values that were not saved by a run under their registration's name are in the checkpoint by their own names.
  Status AddValues(std::map<Rank, std::map<std::string, Bytes>>* objects) {
    std::optional<formats::SavedValues> saved;
    for (const auto& [key, object] : registry_.objects()) {
      if (object.kind != ObjectKind::kMirrored || object.take_over != TakeOver::kRankZero) continue;
      Bytes now;
      object.capture(object.context, &now);
      const std::string_view text(reinterpret_cast<const char*>(now.data()), now.size());
      if (!Values::AreIn(text)) continue;
      if (const auto zero = objects->find(Rank(0)); zero != objects->end() && zero->second.count(key)) continue;
      KINTSUGI_ASSIGN_OR_RETURN(const Values wanted, Values::Decode(text));
      if (!saved) saved.emplace(catalog_->objects());
      const auto taken = saved->Take(wanted);
      if (!taken.ok()) return taken.status().Annotate("object '" + key + "'");
      const std::string bytes = taken->Encode();
      (*objects)[Rank(0)][key] = Bytes(bytes.begin(), bytes.end());
    }
    return Status::Ok();
  }

  void Tell(const BlockReader& reader) {
    const auto& identity = loaded_.info.manifest.identity;
    loaded_.note = "event=resumed_reshaped step=" + identity.step.ToString() + " rank=" + request_.self.ToString() +
                   (identity.world_size > 0 ? " ranks_saved=" + std::to_string(identity.world_size)
                                            : " format=" + catalog_->format()) +
                   " ranks=" + std::to_string(request_.world_size) + " read=\"" + MiB(reader.bytes_read()) + " of " +
                   MiB(catalog_->ByteCount()) + " stored\" needed=\"" + MiB(inflow_->bytes()) + "\" straight=\"" +
                   MiB(reader.bytes_straight()) + "\" beside_the_state=\"" +
                   MiB(reader.buffer_peak_bytes() + target_->staged_bytes()) + "\"";
    if (!unexpected_.empty()) loaded_.note += " not_stored=\"" + Named(unexpected_) + "\"";
    for (std::string note : program_notes_) {
      std::replace(note.begin(), note.end(), '"', '\'');
      loaded_.note += " program=\"" + note + "\"";
    }
    if (!otherwise_.empty()) loaded_.note += " not_as_each_rank_had_it=\"" + Named(otherwise_) + "\"";
    if (!unread_.empty()) loaded_.note += " not_read=\"" + Named(unread_) + "\"";
  }

  const StateRegistry& registry_;
  const LoadRequest& request_;
  const ReshapeOptions& options_;
  Agreement agreement_;
  std::unique_ptr<formats::Catalog> catalog_;
  std::unique_ptr<ResumeTarget> target_;
  std::unique_ptr<plan::Plan> plan_;
  std::unique_ptr<plan::RenamedPlan> renamed_;
  reshard::Bindings bindings_;
  std::optional<reshard::Inflow> inflow_;
  std::vector<std::string> unexpected_, unread_, otherwise_, program_notes_;
  Loaded loaded_;
};

}  // namespace

Result<Loaded> LoadReshaped(const StateRegistry& registry, const LoadRequest& request, const ReshapeOptions& options,
                            Agreement agreement) {
  auto loaded = Loader(registry, request, options, agreement).Run();
  if (!loaded.ok()) return loaded.status().Annotate("into another layout");
  return loaded;
}

Result<aoa::ProgramText> ReadProgram(const std::string& reference, const aoa::UserMacros& macros) {
  const std::string place = "AOA program '" + reference + "'";
  const auto read = [&](const std::string& path) -> Result<std::string> {
    KINTSUGI_ASSIGN_OR_RETURN(std::string text,
                              checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), path, kProgramBytesMax));
    if (text.find_first_not_of(" \t\r\n") == std::string::npos)
      return Status(StatusCode::kInvalidArgument, "AOA program '" + path + "' is empty");
    return text;
  };
  KINTSUGI_ASSIGN_OR_RETURN(aoa::ProgramText program, aoa::ReadProgram(reference, read, {.place = place}));
  KINTSUGI_RETURN_IF_ERROR(aoa::CheckStatements(program.statements, &macros).Annotate(place));
  return program;
}

}  // namespace kintsugi::resume
