// bench_command: what `kintsugi reshard` costs beside the library under it, a million shards as JSON.
//
// The command: text read into metadata, judged or planned and proven, answered as text. The library: the same layouts
// described shard by shard, judged or planned and proven. CPU time of one thread, both in the same run. Budget: twice
// the library's time. `growth` is the time's exponent from a tenth of the shards to all of them.
#include <cmath>

#include "replica/layout/builder.h"
#include "replica/layout/validate.h"
#include "replica/plan/plan_check.h"
#include "replica/plan/planner.h"
#include "tests/bench/figures.h"
#include "tests/bench/plan_layouts.h"
#include "tests/bench/thread_time.h"
#include "tools/reshard/reshard_answer.h"
#include "tools/reshard/validate_answer.h"

namespace kintsugi::bench {
namespace {

using layout::Metadata;

void AppendSide(const char* name, const Metadata& metadata, std::string* text) {
  *text += std::string(",\n\"") + name + "\":[";
  for (const layout::KeyMeta& key : metadata.keys)
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const layout::PieceView piece = metadata.Piece(key, i);
      for (const layout::Holder& holder : piece.holders) {
        *text += text->back() == '[' ? "\n" : ",\n";
        *text += "{\"rank\":" + std::to_string(holder.rank) + ",\"key\":\"" + key.name + "\",\"offset\":[";
        for (int axis = 0; axis < piece.axes; ++axis) *text += (axis ? "," : "") + std::to_string(piece.lo[axis]);
        *text += "],\"shape\":[";
        for (int axis = 0; axis < piece.axes; ++axis)
          *text += (axis ? "," : "") + std::to_string(piece.hi[axis] - piece.lo[axis]);
        *text += "]}";
      }
    }
  *text += "]";
}

std::string TextOf(const Metadata& source, const Metadata& target) {
  std::string text = "{\"tensors\":[";
  for (const layout::KeyMeta& key : source.keys) {
    text += (text.back() == '[' ? "\n{\"key\":\"" : ",\n{\"key\":\"") + key.name + "\",\"dtype\":\"" +
            std::string(DTypeName(key.dtype)) + "\",\"global_shape\":[";
    for (int axis = 0; axis < key.axes; ++axis)
      text += (axis ? "," : "") + std::to_string(key.global_shape[static_cast<size_t>(axis)]);
    text += "]}";
  }
  text += "]";
  AppendSide("source", source, &text);
  AppendSide("target", target, &text);
  return text + "}";
}

// Shards as a rank describes them.
std::vector<std::pair<int32_t, ShardedTensor>> ShardsOf(const Metadata& metadata) {
  std::vector<std::pair<int32_t, ShardedTensor>> shards;
  for (const layout::KeyMeta& key : metadata.keys)
    for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
      const layout::PieceView piece = metadata.Piece(key, i);
      ShardedTensor shard;
      shard.key = key.name;
      shard.dtype = key.dtype;
      shard.global_shape.assign(key.global_shape.begin(), key.global_shape.begin() + key.axes);
      for (int axis = 0; axis < piece.axes; ++axis) {
        shard.global_offset.push_back(piece.lo[axis]);
        shard.local_shape.push_back(piece.hi[axis] - piece.lo[axis]);
      }
      for (const layout::Holder& holder : piece.holders) shards.emplace_back(holder.rank, shard);
    }
  return shards;
}

Metadata Built(const std::vector<std::pair<int32_t, ShardedTensor>>& shards) {
  layout::MetadataBuilder builder;
  for (const auto& [rank, shard] : shards) builder.AddTensor(rank, shard);
  return builder.Build();
}

// As the command holds a file that it has read: with room behind.
std::string Input(const std::string& text) {
  std::string input;
  input.reserve(text.size() + (1 << 16));
  return input += text;
}

struct Times {
  double validate_library = 0, validate_command = 0, plan_library = 0, plan_command = 0;
  size_t text_bytes = 0;
};

Times Measure(uint64_t shards, int runs) {
  const Metadata from = Tensors(Cut::kLine, shards, true), to = Tensors(Cut::kLine, shards, false);
  const std::string text = TextOf(from, to);
  const auto source = ShardsOf(from), target = ShardsOf(to);
  std::vector<double> times[4];
  for (int run = 0; run < runs; ++run) {
    times[0].push_back(ThreadTime([&] {
      if (!Validate(Built(source)).empty()) Need({StatusCode::kInternal, "the layout is wrong"});
    }));
    std::string input = Input(text);
    times[1].push_back(ThreadTime([&] {
      const auto spec = reshard::ReadLayoutSpec(std::move(input), reshard::SpecSides::kSource);
      Need(spec.status());
      if (!Validate(spec->source).empty()) Need({StatusCode::kInternal, "the layout is wrong"});
      if (reshard::ValidateJson(spec->source, false).empty()) Need({StatusCode::kInternal, "no answer"});
    }));
    times[2].push_back(ThreadTime([&] {
      const Metadata held = Built(source), wanted = Built(target);
      for (const Metadata* side : {&held, &wanted})
        if (!Validate(*side, {.is_request = true}).empty()) Need({StatusCode::kInternal, "the layout is wrong"});
      const auto made = plan::MakePlan(held, wanted, {});
      Need(made.status());
      if (const auto error = plan::CheckPlan(*made, held, wanted)) Need(error->ToStatus());
    }));
    input = Input(text);
    times[3].push_back(ThreadTime([&] {
      auto spec = reshard::ReadLayoutSpec(std::move(input), reshard::SpecSides::kBoth);
      Need(spec.status());
      reshard::ReshardQuestion question;
      question.spec = std::move(*spec);
      const auto answer = reshard::AnswerReshard(std::move(question));
      Need(answer.status());
      size_t answer_bytes = 0;
      answer->WriteJson([&](std::string_view part) { answer_bytes += part.size(); });
      if (answer_bytes == 0) Need({StatusCode::kInternal, "no answer"});
    }));
  }
  return {Median(times[0]), Median(times[1]), Median(times[2]), Median(times[3]), text.size()};
}

void AddRatio(Figures& figures, const std::string& id, double command, double library, const Times& times) {
  Figure figure = AtMost(id, command, "s", {});
  figure.baseline = library;
  figure.ratio = command / library;
  figure.budget = 2;
  figure.ok = *figure.ratio <= 2;
  figure.more = {{"budget_of", "ratio"}, {"baseline_source", "the library"}, {"text_MB", times.text_bytes / 1000000}};
  figures.Add(figure);
}

int Main(int argc, char** argv) {
  int runs = 3;
  uint64_t shards = 1000000;
  std::string json;
  CLI::App app{"What `kintsugi reshard` costs beside the library"};
  app.add_option("--runs", runs, "Repetitions")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--shards", shards, "Of each side")->check(CLI::Range(10240, 10000000))->capture_default_str();
  AddJsonOption(app, &json);
  CLI11_PARSE(app, argc, argv);
  Figures figures("command");
  const Times small = Measure(shards / 10, runs), large = Measure(shards, runs);
  AddRatio(figures, "validate", large.validate_command, large.validate_library, large);
  AddRatio(figures, "plan", large.plan_command, large.plan_library, large);
  figures.Add(AtMost("growth/validate", std::log10(large.validate_command / small.validate_command), "1", {}));
  figures.Add(AtMost("growth/plan", std::log10(large.plan_command / small.plan_command), "1", {}));
  return figures.Finish(JsonTarget(app, json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
