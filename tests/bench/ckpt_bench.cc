// bench_ckpt: checkpoints written, converted and resumed from, each beside its peer in the same run.
//
//   write/FORMAT        a state in the page cache into safetensors, .pt, DCP, with checksums, synced   against
//                       write(4 MiB) ... fsync of the same bytes from memory, and the library's own writer
//   convert/A-to-B      DCP of 8 ranks to Hugging Face shards, and back at TP 4, source cold and warm  against
//                       the same by the libraries in Python (load, reassemble, save)
//   resume/8-to-6       a checkpoint of 8 ranks into 6, all at once, cold and warm                     against
//                       read(4 MiB) of the same bytes by as many threads into the same memory
//   resume/8-to-6/../with-sums   the same, and what the ranks hold compared with the sums in it      against
//                       the same without
//
// Every task is a process of its own, so that each has its own peak of memory; start and imports are not timed. Medians
// over the rounds; ratios are the medians of the rounds' own, and a round's tasks come in an order that alternates.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "callbacks/state/registry.h"
#include "replica/formats/convert.h"
#include "replica/formats/safetensors/header.h"
#include "replica/resume/held_sums.h"
#include "replica/resume/reshaped_load.h"
#include "replica/save/names.h"
#include "runtime/base/random.h"
#include "tests/bench/figures.h"
#include "tests/support/memory_store.h"

namespace kintsugi::bench {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileError;

constexpr uint64_t kChunkBytes = 4 << 20;
constexpr int kRanks = 6;
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

// By the wall clock, and of processors by all threads of this process: the latter is steadier on a busy machine.
struct Spent {
  double seconds = 0, cpu_seconds = 0;
};

double CpuSeconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

Spent TimeOf(const std::function<void()>& work) {
  const double cpu = CpuSeconds();
  const TimePoint begin = SteadyClock::SteadyNow();
  work();
  return {static_cast<double>((SteadyClock::SteadyNow() - begin).count()) * 1e-9, CpuSeconds() - cpu};
}

struct Descriptor {
  Descriptor(const std::string& path, int flags) : number(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (number < 0) Need(FileError(errno, "open", path));
  }
  ~Descriptor() { ::close(number); }
  Descriptor(const Descriptor&) = delete;
  const int number;
};

std::vector<std::string> FilesOf(const std::string& path) {
  if (fs::is_regular_file(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

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

// ---- tasks: each in a process of its own -------------------------------------------------------------------------

Spent PlainWrite(const Json& task) {
  std::vector<std::vector<uint8_t>> state;
  for (const std::string& file : FilesOf(task["source"])) {
    const Descriptor fd(file, O_RDONLY);
    auto& bytes = state.emplace_back(fs::file_size(file));
    for (uint64_t at = 0; at < bytes.size();) {
      const ssize_t got = ::pread(fd.number, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
      if (got <= 0) Need(FileError(errno, "read", file));
      at += static_cast<uint64_t>(got);
    }
  }
  return TimeOf([&] {
    const std::string path = task["destination"];
    const Descriptor fd(path, O_WRONLY | O_CREAT | O_TRUNC);
    for (const auto& bytes : state)
      for (uint64_t at = 0; at < bytes.size(); at += kChunkBytes) {
        const uint64_t size = std::min(kChunkBytes, bytes.size() - at);
        if (::write(fd.number, bytes.data() + at, size) != static_cast<ssize_t>(size))
          Need(FileError(errno, "write", path));
      }
    if (::fsync(fd.number) != 0) Need(FileError(errno, "sync", path));
  });
}

Spent Convert(const Json& task) {
  formats::ConvertOptions options;
  options.to_format = task["to"];
  options.lay.shards = task.value("shards", 1);
  return TimeOf([&] { Need(formats::Convert(task["source"], task["destination"], options).status()); });
}

enum class Reading { kResume, kPlain, kChecked };

// Rank `rank` of six: its rows of every tensor.
struct Holder {
  Holder(const formats::Catalog& catalog, int rank) {
    for (const formats::CatalogTensor& stored : catalog.tensors()) {
      ShardedTensor tensor;
      tensor.key = stored.key;
      tensor.dtype = stored.dtype;
      tensor.global_shape = tensor.local_shape = stored.shape;
      const int64_t begin = stored.shape[0] * rank / kRanks, end = stored.shape[0] * (rank + 1) / kRanks;
      tensor.local_shape[0] = end - begin;
      tensor.global_offset = Shape(stored.shape.size());
      tensor.global_offset[0] = begin;
      if (begin == end) continue;
      auto& memory = memories.emplace_back(static_cast<uint64_t>(tensor.ElementCount()) * DTypeSize(tensor.dtype), 1);
      tensor.memory.data = memory.data();
      tensor.memory.size_bytes = memory.size();
      Need(registry.AddTensor(tensor));
    }
  }
  std::vector<std::vector<uint8_t>> memories;  // touched: a trainer's are
  StateRegistry registry;
};

// `read`: as a run resumes; else only the bytes, with or without their checksums.
Spent Resume(const Json& task, Reading read) {
  const std::string path = task["source"];
  const auto catalog = formats::ReadCatalog(path);
  Need(catalog.status());
  std::vector<std::unique_ptr<Holder>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<Holder>(*catalog, rank));
  std::vector<std::string> files;
  for (const auto& file : catalog->files()) files.push_back(file->path());
  const uint64_t stored = catalog->ByteCount();
  MemoryStore store;
  // Checksums are taken in parts that stay in the near cache, as a resume does.
  const uint64_t chunk = read == Reading::kChecked ? checkpoint::kSubBlockBytes : kChunkBytes;
  std::vector<checkpoint::Checksum> checksums(kRanks);
  const auto read_plainly = [&](int rank) {
    // An equal part of all bytes, in the order of the files, into this rank's memory.
    uint64_t skip = stored * static_cast<uint64_t>(rank) / kRanks;
    size_t file = 0;
    while (file < files.size() && skip >= fs::file_size(files[file])) skip -= fs::file_size(files[file++]);
    auto fd = std::make_unique<Descriptor>(files[file], O_RDONLY);
    for (auto& memory : ranks[static_cast<size_t>(rank)]->memories)
      for (uint64_t at = 0; at < memory.size();) {
        const ssize_t got =
            ::pread(fd->number, memory.data() + at, std::min(chunk, memory.size() - at), static_cast<off_t>(skip));
        if (got < 0) Need(FileError(errno, "read", files[file]));
        if (got == 0) {
          if (++file == files.size()) return;
          fd = std::make_unique<Descriptor>(files[file], O_RDONLY);
          skip = 0;
        }
        if (read == Reading::kChecked)
          checksums[static_cast<size_t>(rank)] ^=
              checkpoint::ChecksumOf({memory.data() + at, static_cast<size_t>(got)});
        at += static_cast<uint64_t>(got);
        skip += static_cast<uint64_t>(got);
      }
  };
  const auto load = [&](int rank) {
    checkpoint::LoadRequest request;
    request.path = path;
    request.self = Rank(rank);
    request.world_size = kRanks;
    const StateRegistry& registry = ranks[static_cast<size_t>(rank)]->registry;
    resume::Agreement agreement(&store, Rank(rank), kRanks, TimePoint::Max());
    const auto loaded = resume::LoadReshaped(registry, request, {}, agreement);
    Need(loaded.status());
    const auto compared = resume::CompareHeldSums(registry, *loaded, kRanks, {}, &agreement);
    Need(compared.status());
    if (compared->equal == 0) Need({StatusCode::kInternal, "nothing was compared"});
  };
  return TimeOf([&] {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] { read == Reading::kResume ? load(rank) : read_plainly(rank); });
    for (std::thread& thread : threads) thread.join();
  });
}

int RunTask(const Json& task) {
  const std::string what = task["do"];
  const Spent spent = what == "plain-write"    ? PlainWrite(task)
                      : what == "convert"      ? Convert(task)
                      : what == "plain-read"   ? Resume(task, Reading::kPlain)
                      : what == "checked-read" ? Resume(task, Reading::kChecked)
                                               : Resume(task, Reading::kResume);
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const Json told = {{"seconds", spent.seconds},
                     {"cpu_seconds", spent.cpu_seconds},
                     {"peak_mib", static_cast<double>(usage.ru_maxrss) / 1024}};
  std::printf("%s\n", told.dump().c_str());
  return 0;
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
  }

 private:
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
    const auto runs = Measure(
        {[&] { return Ask(ours_, ours); }, [&] { return Ask(peers_, theirs); }, [&] { return Ask(ours_, plain); }},
        [&] { cold ? Chill(source) : Warm(source); });
    const std::string figure = "convert/" + id + (cold ? "/cold" : "/warm");
    Report(figure, runs[0], runs[1], 5);
    // What the disk allows: no conversion can be much faster, whatever the library takes.
    Report(figure + "/against-plain-write", runs[0], runs[2], 0);
  }

  void Resumption(const std::string& step, bool cold) {
    if (!IsAsked("resume/8-to-6")) return;
    const Json ours = {{"do", "resume"}, {"source", step}}, plain = {{"do", "plain-read"}, {"source", step}},
               checked = {{"do", "checked-read"}, {"source", step}};
    const auto runs = Measure(
        {[&] { return Ask(ours_, ours); }, [&] { return Ask(ours_, plain); }, [&] { return Ask(ours_, checked); }},
        [&] { cold ? Chill(step) : Warm(step); });
    const std::string figure = std::string("resume/8-to-6") + (cold ? "/cold" : "/warm");
    Report(figure, runs[0], runs[1], 0.8);
    // What checksums alone leave of a plain read: nothing that compares them can be faster.
    Report(figure + "/read-and-checksums-alone", runs[2], runs[1], 0);
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
  app.add_option("--only", options.only, "Glob over write/FORMAT, convert/A-to-B, resume/8-to-6")
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
