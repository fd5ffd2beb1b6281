#include "replica/formats/deepspeed/names.h"

#include <algorithm>
#include <charconv>

#include "replica/save/file_system.h"
#include "replica/save/names.h"

namespace kintsugi::formats::deepspeed {
namespace {

using checkpoint::Join;

constexpr std::string_view kTag = "global_step", kUniversal = "_universal";

bool TakeText(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool TakeNumber(std::string_view* text, int* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number < 0 || *number > 1'000'000) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

std::string TwoDigits(int number) { return (number < 10 ? "0" : "") + std::to_string(number); }

}  // namespace

std::optional<FileName> ParseFileName(std::string_view name) {
  FileName file;
  if (!TakeText(&name, "bf16_")) TakeText(&name, "fp16_");
  if (TakeText(&name, "zero_pp_rank_") && (!TakeNumber(&name, &file.data) || !TakeText(&name, "_")))
    return std::nullopt;
  if (!TakeText(&name, "mp_rank_") || !TakeNumber(&name, &file.model)) return std::nullopt;
  file.is_optimizer = name == kOptimEnding;
  if (!file.is_optimizer && name != kModelEnding) return std::nullopt;
  if (file.is_optimizer && file.data < 0) return std::nullopt;  // of a run without ZeRO: its optimizer is in one piece
  return file;
}

std::string ModelFileName(int model) { return "mp_rank_" + TwoDigits(model) + std::string(kModelEnding); }

std::string CutModelFileName(int data) {
  return "zero_pp_rank_" + std::to_string(data) + "_mp_rank_00" + std::string(kModelEnding);
}

std::string OptimizerFileName(int data, bool is_bfloat16) {
  return (is_bfloat16 ? "bf16_" : "") + std::string("zero_pp_rank_") + std::to_string(data) + "_mp_rank_00" +
         std::string(kOptimEnding);
}

std::string TagOf(uint64_t step) { return std::string(kTag) + std::to_string(step); }

std::optional<uint64_t> StepOfTag(std::string_view tag) {
  if (tag.ends_with(kUniversal)) tag.remove_suffix(kUniversal.size());
  uint64_t step = 0;
  if (!TakeText(&tag, kTag) || tag.empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(tag.data(), tag.data() + tag.size(), step);
  if (error != std::errc() || end != tag.data() + tag.size()) return std::nullopt;
  return step;
}

Result<std::string> FolderOf(const std::string& path, std::string_view tracker) {
  const std::string file = Join(path, tracker);
  if (!IsFile(file)) return path;
  KINTSUGI_ASSIGN_OR_RETURN(std::string tag, checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), file, 4096));
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == ' ')) tag.pop_back();
  if (!checkpoint::IsPlainName(tag))
    return Status(StatusCode::kDataLoss, "'" + file + "' names no folder: it is torn; name the tag's folder itself");
  return Join(path, tag);
}

Path StatePath(const std::string& parameter, const std::string& state) {
  return {{PathPart::Kind::kText, std::string(kZero), 0},
          {PathPart::Kind::kText, parameter, 0},
          {PathPart::Kind::kText, state, 0}};
}

std::optional<ParameterState> StateOf(const Path& path, const std::string& key) {
  if (path.size() == 3 && path[0].text == kZero && path[1].kind == PathPart::Kind::kText &&
      path[2].kind == PathPart::Kind::kText)
    return ParameterState{path[1].text, path[2].text};
  const size_t first = key.find('.'), last = key.rfind('.');
  if (first == std::string::npos || last <= first + 1 || key.substr(0, first) != kZero) return std::nullopt;
  return ParameterState{key.substr(first + 1, last - first - 1), key.substr(last + 1)};
}

std::optional<std::string> ModuleOf(const Path& path, const std::string& key) {
  if (path.size() > 1 && path[0].text == kModule) return JoinPath(Path(path.begin() + 1, path.end()));
  std::string_view text = key;
  if (!TakeText(&text, kModule) || !TakeText(&text, ".") || text.empty()) return std::nullopt;
  return std::string(text);
}

bool IsLayoutOfOptimizer(std::string_view key) {
  constexpr std::string_view kKeys[] = {"single_partition_of_fp32_groups",
                                        "fp32_flat_groups",
                                        "base_optimizer_state",
                                        "optimizer_state_dict",
                                        "param_slice_mappings",
                                        "group_paddings",
                                        "partition_count",
                                        "zero_stage",
                                        "param_alignment_paddings",
                                        "ds_version",
                                        "ds_zero_partition_groups"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

bool IsFolderName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace kintsugi::formats::deepspeed
