// kintsugi ckpt show | verify | convert | diff: look into checkpoints of any format, prove them, make others of them.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "replica/aoa/program_text.h"
#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/logical_digests.h"
#include "replica/formats/verify.h"
#include "replica/save/describe.h"
#include "runtime/base/peak_memory.h"
#include "tools/cli/answer.h"
#include "tools/cli/checkpoint_progress.h"
#include "tools/cli/common.h"
#include "tools/reshard/reshard_answer.h"

namespace kintsugi::cli {
namespace {

using Json = nlohmann::json;
using formats::Catalog;

struct Options {
  std::string path, other, format, other_format, to, aoa, dtype, layout, against;
  std::vector<std::string> only;
  std::string max_shard_size = "5GB", memory = "1GiB";
  int shards = 1, stages = 1, threads = 0, zero_stage = 2;
  bool distributed_optimizer = false;
  std::optional<uint64_t> step;
  bool json = false, digests = false, skip_objects = false, overwrite = false, no_side_files = false,
       trust_sums = false;
};

// A file that somebody cuts short while it is mapped: the words must not need memory.
void SayCutShort(int) {
  constexpr char kText[] =
      "kintsugi: a file of the checkpoint was cut short while it was read (or its disk failed): nothing was "
      "published\n";
  (void)!::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  ::_exit(core::kExitFailed);
}

int Fail(const Status& status) {
  Complain(status.message());
  return status.code() == StatusCode::kInvalidArgument ? core::kExitUsage : core::kExitFailed;
}

double PeakMiB() { return static_cast<double>(PeakMemoryBytes()) / (1 << 20); }

Json CatalogJson(const Catalog& catalog, const std::map<std::string, uint64_t>& digests) {
  std::map<uint32_t, size_t> pieces;
  for (const formats::CatalogPiece& piece : catalog.pieces()) ++pieces[piece.tensor];
  Json tensors = Json::array(), objects = Json::array(), files = Json::array();
  for (uint32_t i = 0; i < catalog.tensors().size(); ++i) {
    const formats::CatalogTensor& tensor = catalog.tensors()[i];
    Json entry = {
        {"key", tensor.key}, {"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}, {"pieces", pieces[i]}};
    if (!tensor.alias_of.empty()) entry["alias_of"] = tensor.alias_of;
    if (const auto sum = catalog.SumOf(tensor)) entry["sum"] = Hex(*sum);
    if (const auto found = digests.find(tensor.key); found != digests.end()) entry["digest"] = Hex(found->second);
    tensors.push_back(std::move(entry));
  }
  for (const formats::CatalogObject& object : catalog.objects())
    objects.push_back({{"key", object.key}, {"form", formats::FormName(object.form)}, {"bytes", object.data.size()}});
  for (const auto& file : catalog.files()) files.push_back({{"name", file->name()}, {"bytes", file->size_bytes()}});
  Json side_files = Json::array();
  for (const formats::CatalogSideFile& side : catalog.side_files()) side_files.push_back(side.name);
  Json json = {{"format", catalog.format()}, {"path", catalog.path()},  {"bytes", catalog.ByteCount()},
               {"tensors", tensors},         {"objects", objects},      {"files", files},
               {"side_files", side_files},   {"notes", catalog.notes()}};
  if (catalog.step()) json["step"] = *catalog.step();
  return json;
}

int RunShow(const Options& options) {
  // A native checkpoint has more to say of itself.
  if (options.format.empty() && !options.digests)
    if (const auto found = formats::DetectFormat(options.path); found.ok() && (*found)->name() == "native") {
      const Result<std::string> text = checkpoint::DescribeCheckpoint(options.path);
      if (!text.ok()) return Fail(text.status());
      std::cout << *text << std::endl;
      return core::kExitSuccess;
    }
  const auto catalog = formats::ReadCatalog(options.path, options.format, {.skip_objects = true});
  if (!catalog.ok()) return Fail(catalog.status());
  std::map<std::string, uint64_t> digests;
  if (options.digests) {
    CheckpointProgress progress("reading", !options.json);
    auto made = LogicalDigests(*catalog, progress.Callback());
    if (!made.ok()) return Fail(made.status());
    digests = std::move(made).value();
  }
  std::cout << CatalogJson(*catalog, digests).dump(1) << std::endl;
  return core::kExitSuccess;
}

// A tensor that is not read is no equal one.
formats::ReadOptions ToCompare(const Options& options) {
  return {.skip_objects = options.skip_objects, .only = options.only, .skip_unsafe = true};
}

// What is there, against what was there: nothing where every tensor is as it was, else the first that are not.
Result<std::string> VerifyAgainst(const Options& options, Json* answer) {
  CheckpointProgress progress("reading", !options.json);
  KINTSUGI_ASSIGN_OR_RETURN(const auto expected,
                            formats::ReadDigests(options.against, ToCompare(options), progress.Callback()));
  KINTSUGI_ASSIGN_OR_RETURN(const Catalog catalog,
                            formats::ReadCatalog(options.path, options.format, ToCompare(options)));
  KINTSUGI_ASSIGN_OR_RETURN(const auto found, formats::DigestsOf(catalog, progress.Callback()));
  progress.Clear();
  const formats::DigestsMatch verdict = formats::CompareDigests(expected, found);
  (*answer)["against"] = {
      {"equal", verdict.equal}, {"other", verdict.other}, {"missing", verdict.missing}, {"more", verdict.more}};
  constexpr size_t kNamed = 8;
  std::string text;
  for (const auto& [keys, what] :
       {std::pair(&verdict.other, " is another"), std::pair(&verdict.missing, " is missing")})
    for (size_t i = 0; i < std::min(keys->size(), kNamed); ++i)
      text += (text.empty() ? "" : ", ") + ("'" + (*keys)[i] + "'") + what;
  if (const size_t all = verdict.other.size() + verdict.missing.size(); all > 0)
    text = options.path + ": " + std::to_string(all) + " of " + std::to_string(expected.size()) +
           " tensors are not as in " + options.against + ": " + text;
  return text;
}

int RunVerify(const Options& options) {
  CheckpointProgress progress("reading", !options.json);
  const auto verified =
      formats::VerifyAny(options.path, options.format, [&](uint64_t done) { progress.Show(done, 0); });
  progress.Clear();
  if (!verified.ok()) {
    if (options.json) std::cout << Json{{"ok", false}, {"error", verified.status().message()}}.dump() << std::endl;
    return Fail(verified.status());
  }
  Json answer = {{"ok", true},
                 {"format", verified->format},
                 {"tensors", verified->tensors},
                 {"bytes", verified->bytes},
                 {"has_checksums", verified->has_checksums},
                 {"checked_bytes", verified->checked_bytes},
                 {"tensor_sums", verified->tensor_sums},
                 {"notes", verified->notes}};
  if (!options.against.empty()) {
    const Result<std::string> wrong = VerifyAgainst(options, &answer);
    if (!wrong.ok()) return Fail(wrong.status());
    if (!wrong->empty()) {
      answer["ok"] = false;
      if (options.json) std::cout << answer.dump() << std::endl;
      return Fail({StatusCode::kDataLoss, *wrong});
    }
  }
  if (options.json)
    std::cout << answer.dump() << std::endl;
  else if (verified->has_checksums)
    std::cout << options.path << ": complete, every block as written"
              << (verified->tensor_sums > 0
                      ? ", " + std::to_string(verified->tensor_sums) + " tensors with the sums of what was saved"
                      : "")
              << std::endl;
  else
    std::cout << options.path << ": " << verified->format
              << ", whole by its own index; nobody left checksums of its bytes" << std::endl;
  for (const std::string& note : verified->notes)
    if (!options.json) std::cerr << "kintsugi: note: " << note << std::endl;
  return core::kExitSuccess;
}

Result<formats::ConvertOptions> ReadConvertOptions(const Options& options) {
  formats::ConvertOptions convert;
  convert.from_format = options.format;
  convert.to_format = options.to;
  convert.only = options.only;
  convert.read.skip_objects = options.skip_objects;
  convert.side_files = !options.no_side_files;
  convert.step = options.step;
  convert.lay.shards = options.shards;
  convert.lay.zero_stage = options.zero_stage;
  convert.lay.stages = options.stages;
  convert.lay.distributed_optimizer = options.distributed_optimizer;
  convert.write.threads = options.threads;
  convert.write.overwrite = options.overwrite;
  if (!options.aoa.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(aoa::ProgramText program, aoa::ReadProgram(options.aoa, ReadInput));
    convert.statements = std::move(program.statements);
    convert.reverse = program.reverse;
  }
  // Without a program the new names are those that are read: what is not wanted need not be readable.
  if (options.aoa.empty()) convert.read.only = options.only;
  if (!options.dtype.empty()) {
    const std::map<std::string, std::string> short_names = {{"bf16", "bfloat16"}, {"fp16", "float16"},
                                                            {"fp32", "float32"},  {"fp64", "float64"},
                                                            {"half", "float16"},  {"float", "float32"}};
    const auto found = short_names.find(options.dtype);
    convert.dtype = DTypeFromName(found == short_names.end() ? options.dtype : found->second);
    if (!convert.dtype || !formats::IsFloat(*convert.dtype))
      return Status(StatusCode::kInvalidArgument,
                    "--dtype " + options.dtype + ": name a type of floats (bf16, float32, ..)");
  }
  KINTSUGI_ASSIGN_OR_RETURN(convert.lay.file_bytes_max, ReadByteSize("--max-shard-size", options.max_shard_size));
  KINTSUGI_ASSIGN_OR_RETURN(convert.write.memory_bytes, ReadByteSize("--memory", options.memory));
  if (!options.layout.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(convert.lay.cuts, ReadCutRules(options.layout));
  }
  return convert;
}

int RunConvert(const Options& options) {
  auto convert = ReadConvertOptions(options);
  if (!convert.ok()) return Fail(convert.status());
  CheckpointProgress progress("writing", !options.json);
  convert->write.progress = progress.Callback();
  const TimePoint start = SteadyClock::SteadyNow();
  auto done = formats::Convert(options.path, options.other, *convert);
  progress.Clear();
  const double seconds = ToMilliseconds(SteadyClock::SteadyNow() - start) / 1000;
  if (done.ok()) done->notes.insert(done->notes.end(), done->left_out.begin(), done->left_out.end());
  if (!done.ok()) {
    if (options.json) std::cout << Json{{"ok", false}, {"error", done.status().message()}}.dump() << std::endl;
    return Fail(done.status());
  }
  for (const std::string& note : done->notes)
    if (!options.json) std::cerr << "kintsugi: note: " << note << std::endl;
  if (options.json) {
    std::cout << Json{{"ok", true},
                      {"from", done->from_format},
                      {"to", options.to},
                      {"step", done->step},
                      {"tensors", done->tensors},
                      {"objects", done->objects},
                      {"files", done->written.files},
                      {"bytes", done->written.bytes},
                      {"bytes_unstaged", done->written.bytes_unstaged},
                      {"seconds", seconds},
                      {"peak_mib", PeakMiB()},
                      {"notes", done->notes}}
                     .dump()
              << std::endl;
  } else {
    char text[160];
    std::snprintf(text, sizeof(text), "%zu tensors, %zu objects, %s in %zu files, %.2f s, peak memory %.0f MiB",
                  static_cast<size_t>(done->tensors), static_cast<size_t>(done->objects),
                  DescribeBytes(done->written.bytes).c_str(), static_cast<size_t>(done->written.files), seconds,
                  PeakMiB());
    std::cout << options.other << ": " << options.to << " of step " << done->step << ", " << text << std::endl;
  }
  return core::kExitSuccess;
}

Json DifferenceJson(const formats::Difference& difference) {
  Json json = {{"key", difference.key}, {"kind", formats::KindName(difference.kind)}};
  if (!difference.left.empty()) json["left"] = difference.left;
  if (!difference.right.empty()) json["right"] = difference.right;
  if (difference.kind == formats::Difference::Kind::kValues) {
    json["first"] = difference.first;
    json["elements"] = difference.elements;
    if (difference.largest) json["largest"] = *difference.largest;
  }
  return json;
}

std::string DifferenceText(const formats::Difference& difference) {
  using Kind = formats::Difference::Kind;
  switch (difference.kind) {
    case Kind::kOnlyLeft:
      return "only in the first: " + difference.left;
    case Kind::kOnlyRight:
      return "only in the second: " + difference.right;
    case Kind::kValues: {
      std::string text = std::to_string(difference.elements) + " elements differ, first " +
                         DescribeShape(difference.first) + ": " + difference.left + " and " + difference.right;
      char largest[48];
      if (difference.largest) {
        std::snprintf(largest, sizeof(largest), ", largest difference %.9g", *difference.largest);
        text += largest;
      }
      return text;
    }
    default:
      return difference.left + " and " + difference.right;
  }
}

int RunDiff(const Options& options) {
  const auto left = formats::ReadCatalog(options.path, options.format, ToCompare(options));
  if (!left.ok()) return Fail(left.status());
  const auto right = formats::ReadCatalog(options.other, options.other_format, ToCompare(options));
  if (!right.ok()) return Fail(right.status());
  CheckpointProgress progress("comparing", !options.json);
  const auto compared = formats::Compare(*left, *right, {options.only, options.trust_sums, progress.Callback()});
  progress.Clear();
  if (!compared.ok()) return Fail(compared.status());
  const bool equal = compared->differences.empty();
  std::vector<std::string> notes = left->notes();
  notes.insert(notes.end(), right->notes().begin(), right->notes().end());
  for (const std::string& note : notes)
    if (!options.json) std::cerr << "kintsugi: note: " << note << std::endl;
  if (options.json) {
    Json differences = Json::array();
    for (const formats::Difference& difference : compared->differences)
      differences.push_back(DifferenceJson(difference));
    std::cout << Json{{"equal", equal},
                      {"tensors", compared->tensors},
                      {"by_sums", compared->by_sums},
                      {"objects", compared->objects},
                      {"bytes", compared->bytes},
                      {"notes", notes},
                      {"differences", differences}}
                     .dump()
              << std::endl;
  } else {
    for (const formats::Difference& difference : compared->differences)
      std::cout << difference.key << ": " << DifferenceText(difference) << "\n";
    std::cout << (equal ? "equal" : std::to_string(compared->differences.size()) + " differences") << ": "
              << compared->tensors << " tensors, " << DescribeBytes(compared->bytes) << " and " << compared->objects
              << " objects compared";
    if (compared->by_sums > 0)
      std::cout << "; " << compared->by_sums << " of the tensors by what their writers had summed up, unread";
    std::cout << std::endl;
  }
  return equal ? core::kExitSuccess : core::kExitFailed;
}

constexpr const char* kConvertExample = R"(Examples:

    kintsugi ckpt convert kintsugi-checkpoints model-hf --to safetensors --max-shard-size 5GB
    kintsugi ckpt convert model-hf resume-me --to native --shards 4 --layout '*.bias:none,*.out.weight:1,*:0'

DST is written beside its place and renamed when every byte is on the disk: a converter that is killed leaves nothing that
looks whole. A foreign checkpoint gets a file with checksums of ours; `kintsugi ckpt verify` proves every byte by it.
--layout says by name along which axis a tensor is cut into --shards parts; the first rule that fits counts.)";

}  // namespace

void AddCheckpoint(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("ckpt", "Look into checkpoints of any format, verify, convert, compare");
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, const char* what, int (*run)(const Options&)) {
    CLI::App* sub = command->add_subcommand(name, what);
    sub->add_flag("--json", options->json, "Say it as JSON");
    sub->callback([options, run, &exit_code] {
      struct sigaction action {};
      action.sa_handler = SayCutShort;
      ::sigaction(SIGBUS, &action, nullptr);
      exit_code = run(*options);
    });
    return sub;
  };
  const auto add_path = [&](CLI::App* sub, const char* what) {
    sub->add_option("path", options->path, what)->required();
    sub->add_option("--format", options->format, "The format that lies there (default: found by what lies there)");
  };
  CLI::App* show = add("show", "Print what a checkpoint holds, as JSON", RunShow);
  add_path(show, "A checkpoint's folder or file, or a root of native ones (its newest complete one)");
  show->add_flag("--digests", options->digests,
                 "Read it and print a digest of each tensor that no format or layout changes");
  CLI::App* verify = add("verify", "Check that it is whole, and every byte that has a checksum of ours", RunVerify);
  add_path(verify, "A checkpoint's folder or file");
  verify->add_option(
      "--against", options->against,
      "Also: every tensor is bit for bit what CHECKPOINT has, of any format and layout, or what a JSON file of "
      "'show --digests' says of one that is gone");

  const auto add_skip = [&](CLI::App* sub) {
    sub->add_flag(
        "--skip-objects", options->skip_objects,
        "Leave out objects that are not in the safe subset of pickle, and tensors of kinds that are not read");
  };
  add_skip(verify);

  CLI::App* convert = add("convert", "Make a checkpoint of another format, layout, type or naming", RunConvert);
  add_path(convert, "The checkpoint to read");
  convert->add_option("destination", options->other, "Where the new one goes; nothing may be there")->required();
  std::string names;
  for (const formats::Format* format : formats::AllFormats())
    names += "\n  " + std::string(format->name()) + (format->writes() ? ": " : " (read only): ") +
             std::string(format->what());
  convert->add_option("--to", options->to, "The format to write: the first word of one of" + names)->required();
  convert->add_option(
      "--aoa", options->aoa,
      "AOA statements for new names and shapes: FILE, one a line or a JSON list, or -; or a program that "
      "ships, with its values: @llama:num_heads=32,num_key_value_heads=8, and reverse for the way back");
  convert->add_option("--shards", options->shards, "Ranks to lay the state out for, where the format has such")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  convert->add_option("--layout", options->layout, "How tensors are cut into shards: GLOB:AXIS,.. (default: *:0)");
  convert->add_option("--zero-stage", options->zero_stage, "Which of DeepSpeed's stages is written: 1, 2 or 3")
      ->check(CLI::Range(1, 3))
      ->capture_default_str();
  convert
      ->add_option("--pipeline", options->stages, "Stages of megatron-legacy, each of --shards tensor-parallel ranks")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  convert->add_flag("--distributed-optimizer", options->distributed_optimizer,
                    "Of megatron-legacy: the optimizer's states in distrib_optim.pt, for a DistributedOptimizer");
  convert->add_option("--max-shard-size", options->max_shard_size, "Largest file of Hugging Face shards")
      ->capture_default_str();
  convert->add_option("--dtype", options->dtype, "Cast every tensor of floats: bf16, fp16, float32, ..");
  convert->add_option("--only", options->only, "Only names that fit one of these globs");
  convert->add_option("--step", options->step, "The step that is written (default: the source's)");
  convert->add_option("--memory", options->memory, "Memory for buffers and mapped pages")->capture_default_str();
  convert->add_option("--threads", options->threads, "Files written side by side (default: one per core)")
      ->check(CLI::Range(1, 256));
  add_skip(convert);
  convert->add_flag("--no-side-files", options->no_side_files,
                    "Leave out the files beside the state: configuration, tokenizer, training arguments");
  convert->add_flag("--overwrite", options->overwrite, "Exchange what lies at the destination for the new checkpoint");
  convert->footer(kConvertExample);

  CLI::App* diff = add("diff", "Compare two checkpoints by name: exit code 1 where they differ", RunDiff);
  add_path(diff, "The first checkpoint");
  diff->add_option("other", options->other, "The second checkpoint")->required();
  diff->add_option("--other-format", options->other_format, "The format of the second (default: found)");
  diff->add_option("--only", options->only, "Only names that fit one of these globs");
  add_skip(diff);
  diff->add_flag("--trust-sums", options->trust_sums,
                 "Do not read tensors whose writers found the same sum on both sides: they were equal when they were "
                 "written ('verify' says whether they still are)");
}

}  // namespace kintsugi::cli
