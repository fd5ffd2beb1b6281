// Format: one way of turning names, shapes, pieces and objects into files, and back. It knows nothing of runs.
//
// What: Read makes a catalog of what lies at a path and touches no byte of a tensor; Lay says which files a state
// becomes. The bytes between them are read and written by convert.h, through the reshard engine.
// Errors: kNotFound, nothing of the format lies there; kDataLoss and kInvalidArgument name file, offset and reason.
// Threads: formats have no state.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/catalog.h"
#include "replica/formats/model_part.h"
#include "replica/formats/outline.h"

namespace kintsugi::formats {

struct ReadOptions {
  // Objects that are not in the safe subset, and tensors of a kind that is not read, are left out, with a note, instead of
  // an error: all of them, or those whose names fit none of these globs.
  bool skip_objects = false;
  std::vector<std::string> only;
  // The same of objects alone, where who writes would leave them out anyway.
  bool skip_unsafe = false;
  // Whether what is called so and cannot be read is left out.
  bool LeavesOut(std::string_view key) const;
  // Every tensor must be there as a whole; of a native checkpoint it may be otherwise.
  bool whole = true;
  // Of foreign files: the checksums of our sidecar, where it is there (Catalog::FileBlocks).
  bool checksums = false;
  std::function<Status()> poll;  // asked between two parts of a native checkpoint; its error ends the reading
};

// What is to be written: a tensor under its new name, shape and type, perhaps as an alias of another.
using Content = std::vector<CatalogTensor>;

// A tensor of the state that is stored once more, under another name and type.
struct TypedCopy {
  CatalogTensor tensor;
  std::string of;
};

// Which axis a tensor is cut along, by a glob over names; the first rule that fits counts. -1: not cut.
struct CutRule {
  std::string glob = "*";
  int axis = 0;
};

struct LayOptions {
  int shards = 1;  // ranks that the state is laid out for, where the format has such
  std::vector<CutRule> cuts = {CutRule{}};
  uint64_t file_bytes_max = uint64_t{5} * 1000 * 1000 * 1000;  // of a file of Hugging Face shards
  uint64_t step = 0;
  int zero_stage = 2;                  // of DeepSpeed
  int stages = 1;                      // of a pipeline, each of `shards` ranks: of Megatron's older layout
  bool distributed_optimizer = false;  // the same: states for a DistributedOptimizer
  std::string model_base = "model";    // of Hugging Face's files: what stands before their ending
  ModelPart model;                     // where Format::keeps_model_apart
};

// What the checkpoint of a step is called in a folder that holds several of one format, as its readers look for it.
struct StepNames {
  std::string name;          // of the folder or file
  std::string tracker;       // the file that says which one is the newest, ...
  std::string tracker_text;  // ... and what it then says
};

class KINTSUGI_EXPORT Format {
 public:
  virtual ~Format() = default;
  virtual std::string_view name() const = 0;
  // One line for people.
  virtual std::string_view what() const = 0;
  virtual bool Recognises(const std::string& path) const = 0;
  // Of what Recognises does not take: what lies there of a checkpoint of this format, and what is missing; empty: nothing.
  virtual std::string Unfinished(const std::string&) const { return ""; }
  // The name of a format whose checkpoints these are too: what both recognise at this path is read as this one.
  virtual std::string_view refines(const std::string&) const { return ""; }
  virtual Result<Catalog> Read(const std::string& path, const ReadOptions& options) const = 0;
  virtual bool writes() const { return true; }
  // Whether LayOptions::model counts: a run's model is written as its library looks for it, and the rest apart.
  virtual bool keeps_model_apart() const { return false; }
  // Whether its readers look for optimizer's states under DeepSpeed's names (deepspeed/run_names.h).
  virtual bool keeps_zero_states() const { return false; }
  // Whether a rank holds boxes of tensors, as LayOptions::cuts says; else what is written is one rank's.
  virtual bool is_cut() const { return false; }
  // `destination` is the path that is asked for: its ending may choose between a file and a folder.
  virtual Result<Outline> Lay(const Content& content, const std::vector<CatalogObject>& objects,
                              const LayOptions& options, const std::string& destination) const;
  // What its readers look for beside what the source calls so, made of what it has: objects that Lay gets too.
  virtual std::vector<CatalogObject> FurtherObjects(const Catalog&) const { return {}; }
  // How a run that saves in this format is laid out, where its objects say so and the format's readers ask for the same.
  virtual void FollowRun(const std::vector<CatalogObject>&, LayOptions*) const {}
  // Whether what is not in the safe subset is left out even where nobody asked for that.
  virtual bool leaves_out_unsafe() const { return false; }
  // Whether an object becomes a value within its files, and not a blob of its own: the safe subset alone can.
  virtual bool opens_object(const CatalogObject&) const { return false; }
  // Why the format's readers would not take a file with this object in it; empty: they do.
  virtual std::string RefusalOf(const CatalogObject&) const { return ""; }
  // What the format keeps of the content beside the content itself: Lay gets it, too, as aliases of another type.
  virtual std::vector<TypedCopy> CopiesOf(const Content&) const { return {}; }
  // Unless a format says otherwise: step-N, and `latest`, which names it.
  virtual StepNames StepNamesOf(uint64_t step) const;
  // What a side file is called in a checkpoint's folder.
  virtual std::string SideFileName(const std::string& name) const { return name; }
};

// What is written for one step alone, into the folder of that name: the outline of a format that lays out a whole root
// loses that name in front, and its tracker.
KINTSUGI_EXPORT Outline OfOneStep(Outline outline, const StepNames& names);

KINTSUGI_EXPORT std::span<const Format* const> AllFormats();
// kInvalidArgument lists the names that there are.
KINTSUGI_EXPORT Result<const Format*> FormatNamed(std::string_view name);
// What somebody means who names this path: itself; the file that it is a link to; or what the file `latest` in it names, where
// it is a folder of no format by itself.
KINTSUGI_EXPORT Result<std::string> FollowLatest(const std::string& path);
// All that recognise what lies there, without those that another one refines.
KINTSUGI_EXPORT std::vector<const Format*> FormatsAt(const std::string& path);
// By what lies there. kNotFound says what was looked for; kInvalidArgument, that there are checkpoints of several formats
// with other tensors, or other values in them, which are read then.
KINTSUGI_EXPORT Result<const Format*> DetectFormat(const std::string& path);
// `format` may be empty: then it is found.
KINTSUGI_EXPORT Result<Catalog> ReadCatalog(const std::string& path, const std::string& format = "",
                                            const ReadOptions& options = {});

// For each tensor the number of the one whose bytes it is: itself, but for aliases of a tensor that is written too,
// with the same type and shape.
std::vector<uint32_t> OwnersOf(const Content& content);

// The box that shard `shard` holds of a tensor: pieces of equal length, the last ones shorter or empty, as torch.chunk
// cuts. A tensor that no rule cuts, or that has no such axis, is shard 0's as a whole.
std::vector<layout::Box> CutsOf(const CatalogTensor& tensor, const LayOptions& options);
// '*' any characters, '?' one; the whole name must fit.
KINTSUGI_EXPORT bool MatchesGlob(std::string_view glob, std::string_view name);
// One of `only` matches, or there is none: everything is wanted.
KINTSUGI_EXPORT bool IsWanted(const std::vector<std::string>& only, std::string_view name);

}  // namespace kintsugi::formats
