#include "tests/bench/plan_peers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "replica/layout/builder.h"
#include "replica/layout/validate.h"
#include "replica/plan/distribute.h"
#include "replica/plan/plan_check.h"
#include "replica/plan/planner.h"
#include "tests/bench/thread_time.h"

namespace kintsugi::bench {
namespace {

using layout::Box;
using layout::KeyMeta;
using layout::Metadata;
using layout::MetadataBuilder;

// Every ratio of a largest case is to reach this.
constexpr double kTimesFaster = 50;

struct Measured {
  std::vector<double> seconds;
  bool is_largest = false;
};

struct Cases {
  Json file = {{"distribute", Json::array()}, {"plan", Json::array()}, {"integrity", Json::array()}};
  std::map<std::string, Measured> ours;
};

template <typename Body>
std::vector<double> Repeat(int runs, Body body) {
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) seconds.push_back(ThreadTime(body));
  return seconds;
}

// `each`: how many ranks hold a shard, neighbours.
void AddDistribution(Cases& cases, const std::string& id, int shards, int ranks, int each, bool is_largest, int runs) {
  Json sets = Json::array(), list = Json::array();
  plan::SharedShards held;
  const int count = ranks / each;
  for (int set = 0; set < count; ++set) {
    std::vector<int32_t> holders;
    for (int i = 0; i < each; ++i) holders.push_back(set * each + i);
    held.AddHolders(holders);
    sets.push_back(holders);
  }
  for (int i = 0; i < shards; ++i) {
    const int64_t bytes = 4 * (1 + int64_t{i} * 7919 % 100003);
    held.Add({"layers." + std::to_string(i) + ".weight", {i % 8, 0}, {}, bytes, static_cast<uint32_t>(i % count)});
    list.push_back({"layers." + std::to_string(i) + ".weight", {i % 8, 0}, bytes, i % count});
  }
  cases.file["distribute"].push_back({{"id", id}, {"ranks", ranks}, {"sets", sets}, {"shards", list}});
  cases.ours["distribute/" + id] = {
      Repeat(runs, [&] { Need(Distribute(held, ranks, plan::DistributionPolicy::kMegatron).status()); }), is_largest};
}

std::vector<Box> Grid(const Shape& shape, const Shape& pieces) {
  std::vector<Box> boxes;
  const Box cells = layout::WholeBox(pieces);
  for (int64_t i = 0; i < *Volume(cells); ++i) {
    const layout::Point at = Unravel(cells, i);
    Box box;
    box.axes = cells.axes;
    for (int axis = 0; axis < box.axes; ++axis) {
      const auto a = static_cast<size_t>(axis);
      box.lo[axis] = shape[a] * at[axis] / pieces[a];
      box.hi[axis] = shape[a] * (at[axis] + 1) / pieces[a];
    }
    boxes.push_back(box);
  }
  return boxes;
}

int32_t RankOf(size_t piece, size_t pieces, int ranks) {
  return static_cast<int32_t>(piece * static_cast<size_t>(ranks) / pieces);
}

KeyMeta Key(int number, const Shape& shape) {
  KeyMeta key;
  key.name = "layers." + std::to_string(number) + ".weight";
  key.axes = static_cast<uint8_t>(shape.size());
  key.dtype = DType::kFloat32;
  std::copy(shape.begin(), shape.end(), key.global_shape.begin());
  return key;
}

Metadata Laid(int keys, const Shape& shape, const std::vector<Box>& boxes, int ranks) {
  MetadataBuilder builder;
  const uint32_t replica = builder.AddReplicaId(std::array<int64_t, 1>{0});
  for (int number = 0; number < keys; ++number) {
    const uint32_t key = builder.AddKey(Key(number, shape));
    for (size_t i = 0; i < boxes.size(); ++i)
      builder.AddShard(RankOf(i, boxes.size(), ranks), key, boxes[i].lo.data(), boxes[i].hi.data(), layout::kNotFlat,
                       replica);
  }
  return builder.Build();
}

Json Coordinates(const Box& box) {
  Json list = Json::array();
  for (int axis = 0; axis < box.axes; ++axis) list.push_back(box.lo[axis]);
  for (int axis = 0; axis < box.axes; ++axis) list.push_back(box.hi[axis]);
  return list;
}

void AddPlans(Cases& cases, const std::string& id, int keys, const Shape& shape, const Shape& stored,
              const Shape& wanted, bool is_largest, int runs) {
  constexpr int kRanks = 64;
  const std::vector<Box> held = Grid(shape, stored), asked = Grid(shape, wanted);
  Json case_ = {{"id", id}, {"keys", keys}, {"shape", shape}, {"stored", Json::array()}, {"wanted", Json::array()}};
  for (const Box& box : held) case_["stored"].push_back(Coordinates(box));
  for (size_t i = 0; i < asked.size(); ++i)
    case_["wanted"].push_back({RankOf(i, asked.size(), kRanks), Coordinates(asked[i])});
  cases.file["plan"].push_back(case_);
  const Metadata source = Laid(keys, shape, held, kRanks), target = Laid(keys, shape, asked, kRanks);
  // With the proof, which the peer does not give.
  cases.ours["load-plans/" + id] = {Repeat(runs,
                                           [&] {
                                             const auto made = plan::MakePlan(source, target);
                                             Need(made.status());
                                             if (const auto error = plan::CheckPlan(*made, source, target))
                                               Need(error->ToStatus());
                                           }),
                                    is_largest};
  cases.ours["validate-dcp/" + id] = {Repeat(runs, [&] { Need(ToStatus(Validate(source))); }), is_largest};
}

// Tensors of two axes, the first cut over `tensor` ranks, each part copied over `data` ranks.
void AddIntegrity(Cases& cases, const std::string& id, int keys, int tensor, int data, bool is_largest, int runs) {
  const Shape shape = {int64_t{tensor} * 16, 64};
  MetadataBuilder builder;
  std::vector<uint32_t> replicas;
  Json shards = Json::array();
  for (int copy = 0; copy < data; ++copy) replicas.push_back(builder.AddReplicaId(std::array<int64_t, 1>{copy}));
  for (int number = 0; number < keys; ++number) {
    KeyMeta meta = Key(number, shape);
    meta.is_grid = true;
    meta.fragments[0] = tensor;
    meta.fragments[1] = 1;
    const uint32_t key = builder.AddKey(meta);
    for (int part = 0; part < tensor; ++part)
      for (int copy = 0; copy < data; ++copy) {
        const std::array<int64_t, 2> lo = {part * 16, 0}, hi = {part * 16 + 16, 64};
        builder.AddShard(copy * tensor + part, key, lo.data(), hi.data(), layout::kNotFlat,
                         replicas[static_cast<size_t>(copy)]);
        if (number == 0) shards.push_back({copy * tensor + part, {part * 16, 0}, copy});
      }
  }
  cases.file["integrity"].push_back({{"id", id},
                                     {"keys", keys},
                                     {"ranks", tensor * data},
                                     {"shape", shape},
                                     {"local", {16, 64}},
                                     {"fragments", {tensor, 1}},
                                     {"shards", shards}});
  const Metadata metadata = builder.Build();
  cases.ours["validate-megatron/" + id] = {Repeat(runs, [&] { Need(ToStatus(Validate(metadata))); }), is_largest};
}

// Runs the driver and reads what it prints.
Json AskPeers(const Json& file, const std::string& python, int runs) {
  const auto path =
      std::filesystem::temp_directory_path() / ("kintsugi-plan-peers-" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << file.dump();
  const std::string command = "'" + python + "' '" KINTSUGI_SOURCE_DIR "/tests/bench/plan_peers.py' '" + path.string() +
                              "' " + std::to_string(runs);
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) Need({StatusCode::kInternal, "cannot start " + python});
  std::string text;
  for (char part[4096]; const size_t count = std::fread(part, 1, sizeof part, pipe);) text.append(part, count);
  const int status = pclose(pipe);
  std::filesystem::remove(path);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    Need({StatusCode::kInvalidArgument,
          "the peers could not be measured with " + python + "; ./tools/setup --python installs them"});
  return Json::parse(text);
}

}  // namespace

void MeasurePeers(Figures& figures, const std::string& python, int runs) {
  Cases cases;
  AddDistribution(cases, "100k-shards/64-ranks/all-hold", 100000, 64, 64, false, runs);
  AddDistribution(cases, "100k-shards/1024-ranks/8-hold", 100000, 1024, 8, true, runs);
  AddDistribution(cases, "2k-shards/1024-ranks/all-hold", 2000, 1024, 1024, true, runs);
  AddPlans(cases, "1024-tensors/65536-chunks", 1024, {4096, 4096}, {8, 8}, {16, 4}, false, runs);
  AddPlans(cases, "one-tensor/15625-chunks", 1, {2000, 2000, 2000}, {25, 25, 25}, {24, 25, 26}, true, runs);
  AddIntegrity(cases, "100k-tensors/tp8/800k-shards", 100000, 8, 1, false, runs);
  AddIntegrity(cases, "20k-tensors/tp8-dp16/2560k-shards", 20000, 8, 16, true, runs);
  const Json peers = AskPeers(cases.file, python, runs);
  for (const auto& [id, ours] : cases.ours) {
    Figure figure{"peers/" + id, Median(ours.seconds), "s", {}, {}, {}};
    const auto theirs = peers["seconds"].at(id).get<std::vector<double>>();
    figure.baseline = Median(theirs);
    figure.ratio = *figure.baseline / figure.value;
    figure.more = {{"ratio_is", "baseline / value, times faster"},
                   {"baseline_source", peers["versions"]},
                   {"runs", Rounded(ours.seconds)},
                   {"baseline_runs", Rounded(theirs)}};
    if (ours.is_largest) {
      figure.budget = kTimesFaster;
      figure.ok = *figure.ratio >= kTimesFaster;
      figure.more["budget_of"] = "ratio, at least";
    }
    figures.Add(figure);
  }
}

}  // namespace kintsugi::bench
