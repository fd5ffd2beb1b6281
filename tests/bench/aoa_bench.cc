// bench_aoa: what an AOA program of a large model costs: the engine, and the answers for every shard of the
// destination.
//
// The program: per layer a fused_qkv_old and a fused_ffn weight with their optimizer states, from tensor parallel 4
// to 2. Paddle's engine, with the same layers on this kind of machine: 0.11 s for the engine, 0.041 s for all answers.
#include <chrono>

#include "replica/aoa/engine.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {
namespace {

constexpr double kPaddleEngineMs = 110;
constexpr double kPaddleAnswersMs = 41;
constexpr const char* kPaddleSource = "Paddle's AOA engine, 128 layers, TP 4 to TP 2, measured on this kind of machine";

struct Options {
  int layers = 128;
  int runs = 9;
  std::string json;
};

aoa::Tensor Columns(int64_t rows, int64_t columns, int64_t shards, DType dtype) {
  aoa::Tensor tensor{{rows, columns}, dtype, {}};
  for (int64_t i = 0; i < shards; ++i) tensor.shards.push_back({{0, i * columns / shards}, {rows, columns / shards}});
  return tensor;
}

aoa::Tensors Model(int layers, const std::string& stem, int64_t tensor_parallel) {
  aoa::Tensors tensors;
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = stem + ".layers." + std::to_string(layer);
    for (const auto& [name, columns] :
         {std::pair(".qkv_proj.weight", 6144), std::pair(".gate_up_proj.weight", 28672)}) {
      tensors[prefix + name] = Columns(4096, columns, tensor_parallel, DType::kBFloat16);
      for (const char* state : {".w_0", ".moment1_0", ".moment2_0"})
        tensors[prefix + name + state] = Columns(4096, columns, tensor_parallel, DType::kFloat32);
    }
  }
  return tensors;
}

aoa::Program MakeProgram(int layers) {
  return {
      {"model.layers.$LAYER_ID.qkv_proj.weight -> llm.layers.$LAYER_ID.qkv_proj.weight, fused_qkv_old, num_heads=32, "
       "num_key_value_groups=8",
       "model.layers.$LAYER_ID.gate_up_proj.weight -> llm.layers.$LAYER_ID.gate_up_proj.weight, fused_ffn"},
      Model(layers, "model", 4),
      Model(layers, "llm", 2),
      {}};
}

double Milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Asks for every shard of every tensor; the number of pieces.
size_t AskAll(const aoa::Engine& engine, const aoa::Tensors& destination) {
  size_t pieces = 0;
  for (const auto& [key, tensor] : destination) {
    for (const aoa::Shard& shard : tensor.shards) {
      aoa::Target target{key, {}, std::nullopt};
      for (size_t axis = 0; axis < shard.shape.size(); ++axis)
        target.box.push_back({shard.offset[axis], shard.offset[axis] + shard.shape[axis]});
      const auto answer = engine.FindShardSources(target);
      Need(answer.status());
      pieces += answer->size();
    }
  }
  return pieces;
}

Figure Against(std::string id, const std::vector<double>& runs, double published) {
  Figure figure = AtMost(std::move(id), Median(runs), "ms", published / 3);
  figure.baseline = published;
  figure.more["baseline_source"] = kPaddleSource;
  figure.more["runs"] = Rounded(runs);
  return figure;
}

int Run(const Options& options) {
  Figures figures("aoa");
  const aoa::Program program = MakeProgram(options.layers);
  std::vector<double> build_ms, answers_ms;
  for (int run = -1; run < options.runs; ++run) {  // the first one warms up and is not counted
    aoa::Program copy = program;
    const auto begin = std::chrono::steady_clock::now();
    const auto engine = aoa::Engine::Build(std::move(copy));
    const auto built = std::chrono::steady_clock::now();
    Need(engine.status());
    const size_t pieces = AskAll(*engine, *program.destination);
    const auto answered = std::chrono::steady_clock::now();
    if (pieces == 0) Need({StatusCode::kInternal, "no pieces"});
    if (run < 0) continue;
    build_ms.push_back(Milliseconds(built - begin));
    answers_ms.push_back(Milliseconds(answered - built));
  }
  figures.Add(Against("engine", build_ms, kPaddleEngineMs));
  figures.Add(Against("answers", answers_ms, kPaddleAnswersMs));
  return figures.Finish(options.json);
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) {
  kintsugi::bench::Options options;
  CLI::App app{"An AOA program of a large model: the engine, and the answers for all shards"};
  app.add_option("--layers", options.layers, "Layers of the model")->check(CLI::Range(1, 100000));
  app.add_option("--runs", options.runs, "Measured runs")->check(CLI::Range(1, 1000));
  kintsugi::bench::AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  options.json = kintsugi::bench::JsonTarget(app, options.json);
  return kintsugi::bench::Run(options);
}
