// bench_ckpt: checkpoints written, converted and resumed from, each beside its peer in the same run.
//
//   write/FORMAT        a state in the page cache into safetensors, .pt, DCP, with checksums, synced   against
//                       write(4 MiB) ... fsync of the same bytes from memory, and the library's own writer
//   convert/A-to-B      DCP of 8 ranks to Hugging Face shards, and back at TP 4, source cold and warm  against
//                       the same by the libraries in Python (load, reassemble, save)
//   pair/A-to-B         from each format to each other, source warm, those that are cut in four parts         against
//                       a plain copy of the source's files, synced
//   resume/8-to-6       a checkpoint of 8 ranks into 6, all at once, cold and warm                     against
//                       read(4 MiB) of the same bytes by as many threads into the same memory
//   resume/8-to-6/../read-and-..-alone   reads in parts of 128 KiB, with nothing but checksums, or checksums and sums: what is
//                       left of a plain read by one that compares them
//
// Every task is a process of its own, so that each has its own peak of memory; start and imports are not timed. Medians
// over the rounds; ratios are the medians of the rounds' own, and a round's tasks come in an order that alternates.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "replica/formats/format.h"
#include "replica/formats/safetensors/header.h"
#include "replica/save/names.h"
#include "runtime/base/random.h"
#include "tests/bench/ckpt_tasks.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileError;

constexpr int64_t kColumns = 4096;

struct Options {
  uint64_t mib = 1024;
  int tensors = 64;
  int rounds = 3;
  std::string folder;
  std::string python = KINTSUGI_SOURCE_DIR "/build/python/bin/python";
  std::string only = "*";
  std::string json;
  std::string task;
};

// Out of the page cache, or into it.
void Chill(const std::string& path) {
  ::sync();
  for (const std::string& file : FilesOf(path)) {
    const Descriptor fd(file, O_RDONLY);
    ::posix_fadvise(fd.number, 0, 0, POSIX_FADV_DONTNEED);
  }
}
void Warm(const std::string& path) {
  ::sync();
  std::vector<uint8_t> buffer(kChunkBytes);
  for (const std::string& file : FilesOf(path)) {
    const Descriptor fd(file, O_RDONLY);
    while (::read(fd.number, buffer.data(), buffer.size()) > 0) {
    }
  }
}

// ---- measurement -------------------------------------------------------------------------------------------------

struct Outcome {
  double seconds = 0, cpu_seconds = 0, peak_mib = 0;
};

Outcome Ask(const std::string& program, const Json& task) {
  const std::string command = program + " '" + task.dump() + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) Need({StatusCode::kInternal, "cannot start " + program});
  std::string text;
  for (char part[4096]; const size_t count = std::fread(part, 1, sizeof part, pipe);) text.append(part, count);
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    Need({StatusCode::kInvalidArgument,
          "this could not be measured: " + command + " (./tools/setup --python installs the peers)"});
  const Json answer = Json::parse(text);
  return {answer["seconds"], answer["cpu_seconds"], answer["peak_mib"]};
}

// The runs of one task, over the rounds.
struct Runs {
  std::vector<double> seconds, cpu_seconds;
  double peak_mib = 0;
};

class Bench {
 public:
  Bench(const Options& options, std::string folder, Figures& figures)
      : options_(options),
        folder_(std::move(folder)),
        figures_(figures),
        ours_(fs::read_symlink("/proc/self/exe").string() + " --task"),
        peers_("'" + options.python + "' '" KINTSUGI_SOURCE_DIR "/tests/bench/ckpt_peers.py'") {}

  void Run() {
    WriteSource();
    const Json native = {
        {"do", "convert"}, {"source", source_}, {"destination", At("native")}, {"to", "native"}, {"shards", 8}};
    Ask(ours_, native);
    const std::string step = At("native/" + checkpoint::FolderName(Step(0)));
    Ask(ours_, {{"do", "convert"}, {"source", source_}, {"destination", At("dcp8")}, {"to", "dcp"}, {"shards", 8}});
    Ask(ours_, {{"do", "convert"}, {"source", source_}, {"destination", At("hf")}, {"to", "safetensors"}});
    Write("safetensors", "out.safetensors");
    Write("torch", "out.pt");
    Write("dcp", "out");
    for (const bool cold : {false, true}) {
      Conversion("dcp8-to-hf", At("dcp8"), "safetensors", 1, cold);
      Conversion("hf-to-dcp-tp4", At("hf"), "dcp", 4, cold);
      Resumption(step, cold);
    }
    for (const Form& from : kForms) Pairs(from);
  }

 private:
  struct Form {
    const char *format, *ending;
    int shards;
  };
  static constexpr Form kForms[] = {{"native", "", 4},   {"safetensors", "", 1}, {"torch", ".pt", 1},
                                    {"dcp", "", 4},      {"megatron", "", 4},    {"deepspeed", "", 1},
                                    {"paddle", "", 4}};

  std::string At(const std::string& name) const { return folder_ + "/" + name; }

  void WriteSource() {
    source_ = At("source.safetensors");
    const uint64_t rows = (options_.mib << 20) / static_cast<uint64_t>(options_.tensors) / (kColumns * 4);
    std::vector<formats::safetensors::HeaderTensor> tensors;
    bytes_ = 0;
    for (int i = 0; i < options_.tensors; ++i) {
      char name[64];
      std::snprintf(name, sizeof name, "layers.%04d.weight", i);
      const uint64_t size = rows * kColumns * 4;
      tensors.push_back({name, DType::kFloat32, {static_cast<int64_t>(rows), kColumns}, bytes_, bytes_ + size});
      bytes_ += size;
    }
    const auto header = formats::safetensors::WriteHeader(tensors, {{"format", "pt"}});
    Need(header.status());
    const Descriptor fd(source_, O_WRONLY | O_CREAT | O_TRUNC);
    Random random(1);
    std::vector<uint64_t> words(kChunkBytes / 8);
    for (uint64_t& word : words) word = random.Next() & 0x3fffffff3fffffffu;  // no NaN among floats
    bool ok = ::write(fd.number, header->data(), header->size()) == static_cast<ssize_t>(header->size());
    for (uint64_t at = 0; at < bytes_; at += kChunkBytes) {
      words[0] = at;
      const auto size = static_cast<ssize_t>(std::min(kChunkBytes, bytes_ - at));
      ok = ok && ::write(fd.number, words.data(), static_cast<size_t>(size)) == size;
    }
    if (!ok) Need(FileError(errno, "write", source_));
  }

  // One round of several tasks, in an order that alternates; the first round warms up and is not counted. `settle` runs
  // before each.
  std::vector<Runs> Measure(const std::vector<std::function<Outcome()>>& tasks, const std::function<void()>& settle) {
    std::vector<Runs> runs(tasks.size());
    for (int round = -1; round < options_.rounds; ++round)
      for (size_t i = 0; i < tasks.size(); ++i) {
        const size_t task = round % 2 == 0 ? i : tasks.size() - 1 - i;
        for (const char* name : {"out", "out.safetensors", "out.pt", "plain"}) fs::remove_all(At(name));
        fs::remove(At("out.safetensors.kintsugi.json"));
        fs::remove(At("out.pt.kintsugi.json"));
        settle();
        const Outcome outcome = tasks[task]();
        if (round < 0) continue;
        runs[task].seconds.push_back(outcome.seconds);
        runs[task].cpu_seconds.push_back(outcome.cpu_seconds);
        runs[task].peak_mib = std::max(runs[task].peak_mib, outcome.peak_mib);
      }
    return runs;
  }

  // `ours` beside a baseline, both as rates; the ratio is the median of the rounds' own.
  void Report(const std::string& id, const Runs& ours, const Runs& baseline, double budget, bool is_strict = false) {
    std::vector<double> ratios, rates, others;
    for (size_t i = 0; i < ours.seconds.size(); ++i) {
      ratios.push_back(baseline.seconds[i] / ours.seconds[i]);
      rates.push_back(static_cast<double>(bytes_) * 1e-9 / ours.seconds[i]);
      others.push_back(static_cast<double>(bytes_) * 1e-9 / baseline.seconds[i]);
    }
    Figure figure{id, Median(rates), "GB/s", Median(others), Median(ratios), budget};
    figure.ok = is_strict ? *figure.ratio > budget : *figure.ratio >= budget;
    figure.more = {{"seconds", Rounded(ours.seconds)},
                   {"baseline_seconds", Rounded(baseline.seconds)},
                   {"cpu_seconds", Median(ours.cpu_seconds)},
                   {"baseline_cpu_seconds", Median(baseline.cpu_seconds)},
                   {"peak_mib", ours.peak_mib},
                   {"baseline_peak_mib", baseline.peak_mib}};
    figures_.Add(figure);
  }

  bool IsAsked(const std::string& id) const { return formats::MatchesGlob(options_.only, id); }

  void Write(const std::string& format, const std::string& name) {
    if (!IsAsked("write/" + format)) return;
    const Json ours = {{"do", "convert"}, {"source", source_}, {"destination", At(name)}, {"to", format}};
    const Json plain = {{"do", "plain-write"}, {"source", source_}, {"destination", At("plain")}};
    Json theirs = {{"do", "save"}, {"source", source_}, {"destination", At(name)}, {"to", format}, {"sync", true}};
    Json unsynced = theirs;
    unsynced["sync"] = false;
    const auto runs = Measure({[&] { return Ask(ours_, ours); }, [&] { return Ask(ours_, plain); },
                               [&] { return Ask(peers_, theirs); }, [&] { return Ask(peers_, unsynced); }},
                              [&] { Warm(source_); });
    Report("write/" + format + "/against-plain-write", runs[0], runs[1], 0.9);
    Report("write/" + format + "/against-its-library-synced", runs[0], runs[2], 1, true);
    Report("write/" + format + "/against-its-library-unsynced", runs[0], runs[3], 0);
  }

  void Conversion(const std::string& id, const std::string& source, const std::string& to, int shards, bool cold) {
    if (!IsAsked("convert/" + id)) return;
    const Json ours = {
        {"do", "convert"}, {"source", source}, {"destination", At("out")}, {"to", to}, {"shards", shards}};
    const Json theirs = {{"do", "convert"}, {"source", source}, {"destination", At("out")},
                         {"to", to},        {"sync", true},     {"ranks", shards}};
    const Json plain = {{"do", "plain-write"}, {"source", source}, {"destination", At("plain")}};
    const Json disk = {{"do", "disk"}, {"source", source}, {"destination", At("plain")}};
    const auto runs = Measure({[&] { return Ask(ours_, ours); }, [&] { return Ask(peers_, theirs); },
                               [&] { return Ask(ours_, plain); }, [&] { return Ask(ours_, disk); }},
                              [&] { cold ? Chill(source) : Warm(source); });
    const std::string figure = "convert/" + id + (cold ? "/cold" : "/warm");
    Report(figure, runs[0], runs[1], 5);
    // What the disk allows: no conversion can be much faster, whatever the library takes.
    Report(figure + "/against-plain-write", runs[0], runs[2], 0);
    // The same traffic past the page cache, and nothing else: near 1 a conversion from the disk is bound by it.
    if (cold) Report(figure + "/against-the-disk", runs[0], runs[3], 0);
  }

  static Json Conversion(const std::string& source, const std::string& destination, const Form& to) {
    return {{"do", "convert"}, {"source", source}, {"destination", destination}, {"to", to.format}, {"shards", to.shards}};
  }

  void Pairs(const Form& from) {
    const std::string source = At(std::string("pair") + from.ending);
    bool is_there = false;
    for (const Form& to : kForms) {
      const std::string id = std::string("pair/") + from.format + "-to-" + to.format;
      if (to.format == from.format || !IsAsked(id)) continue;
      if (!is_there) Ask(ours_, Conversion(source_, source, from));
      is_there = true;
      const Json ours = Conversion(source, At(std::string("out") + to.ending), to);
      const Json plain = {{"do", "copy"}, {"source", source}, {"destination", At("plain")}};
      const auto runs = Measure({[&] { return Ask(ours_, ours); }, [&] { return Ask(ours_, plain); }}, [&] { Warm(source); });
      Report(id, runs[0], runs[1], 0.8);
    }
    fs::remove_all(source);
    fs::remove(source + ".kintsugi.json");
  }

  void Resumption(const std::string& step, bool cold) {
    if (!IsAsked("resume/8-to-6")) return;
    std::vector<std::function<Outcome()>> tasks;
    for (const char* what : {"resume", "plain-read", "checked-read", "summed-read"})
      tasks.push_back([this, &step, what] { return Ask(ours_, {{"do", what}, {"source", step}}); });
    const auto runs = Measure(tasks, [&] { cold ? Chill(step) : Warm(step); });
    const std::string figure = std::string("resume/8-to-6") + (cold ? "/cold" : "/warm");
    Report(figure, runs[0], runs[1], 0.8);
    // What checksums, and sums, leave of a plain read: nothing that compares them can be faster.
    Report(figure + "/read-and-checksums-alone", runs[2], runs[1], 0);
    Report(figure + "/read-checksums-and-sums-alone", runs[3], runs[1], 0);
  }

  const Options& options_;
  const std::string folder_;
  Figures& figures_;
  const std::string ours_, peers_;
  std::string source_;
  uint64_t bytes_ = 0;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Checkpoints written, converted and resumed from, beside the libraries and plain files"};
  app.add_option("--mib", options.mib, "MiB of state")->check(CLI::Range(16, 1 << 20))->capture_default_str();
  app.add_option("--tensors", options.tensors, "Number of tensors")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--rounds", options.rounds, "Measured rounds")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--dir", options.folder, "Folder on the disk to measure (default: the current one)");
  app.add_option("--only", options.only, "Glob over write/FORMAT, convert/A-to-B, pair/A-to-B, resume/8-to-6")
      ->capture_default_str();
  app.add_option("--python", options.python, "Interpreter with torch and safetensors")->capture_default_str();
  app.add_option("--task", options.task, "One task, for this program's own use")->group("");
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  if (!options.task.empty()) return RunTask(Json::parse(options.task));

  std::string folder = (options.folder.empty() ? fs::current_path().string() : options.folder) + "/bench-ckpt-XXXXXX";
  if (!::mkdtemp(folder.data())) Need(FileError(errno, "make folder", folder));
  Figures figures("ckpt");
  Bench(options, folder, figures).Run();
  fs::remove_all(folder);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
