// Names inside a checkpoint root: which folder holds which step, and how files in it are called.
//
//   ROOT/latest                          text: name of the newest published folder
//   ROOT/step_0000000012/                one checkpoint, complete
//     manifest.json                      written last: lists the parts
//     part-00003.json                    what rank 3 wrote: tensors, objects, checksums
//     layout0.shard-0-4.bin              the shard of layout 0 that ranks 0 and 4 hold
//     objects.rank-00003.bin             mirrored objects that rank 3 wrote
//   ROOT/step_0000000012.tmp-g7.JOB/     being written by this job in generation 7; never read
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"

namespace kintsugi::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kLatestName = "latest";

KINTSUGI_EXPORT std::string FolderName(Step step);
// Each job has its own: two that save into one root never write into one folder.
KINTSUGI_EXPORT std::string UnfinishedFolderName(Step step, Generation generation, std::string_view job);
// How a job appears in it: what a file's name cannot hold is replaced, and the whole told apart by a hash.
KINTSUGI_EXPORT std::string TagOfJob(std::string_view job);
KINTSUGI_EXPORT std::string PartName(Rank writer);
KINTSUGI_EXPORT std::string ObjectsName(Rank writer);
// Long lists of holders are cut and told apart by their hash.
KINTSUGI_EXPORT std::string ShardName(int layout, const std::vector<Rank>& holders);

// The step of a folder's name, nothing for any other name.
KINTSUGI_EXPORT std::optional<Step> StepOfFolder(std::string_view name);
struct Unfinished {
  Step step;
  Generation generation;
  std::string job_tag;
};
KINTSUGI_EXPORT std::optional<Unfinished> UnfinishedOfFolder(std::string_view name);

KINTSUGI_EXPORT std::string Join(std::string_view folder, std::string_view name);
// The last component of a path, and the folder in front of it ("." where there is none).
KINTSUGI_EXPORT std::string BaseName(std::string_view path);
KINTSUGI_EXPORT std::string ParentOf(std::string_view path);
// A name that stays inside its folder: letters, digits, '.', '_', '-', not beginning with a dot, at most 200 long.
KINTSUGI_EXPORT bool IsPlainName(std::string_view name);

// "0, 4, 9" for messages, cut after a dozen.
KINTSUGI_EXPORT std::string DescribeRanks(const std::vector<Rank>& ranks);

}  // namespace kintsugi::checkpoint
