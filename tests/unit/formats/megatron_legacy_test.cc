// Megatron's older files, written: what each rank holds of a made-up GPT, element by element, and what is refused.
// megatron-core itself loads ours in tests/python/megatron_test.py.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "replica/formats/convert.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/values.h"
#include "tests/support/temporary_folder.h"

namespace kintsugi::formats {
namespace {

using namespace std::string_literals;

struct Named {
  std::string key;
  Shape shape;
};

// Float32, each element its own number, from 0 on in each tensor.
Catalog Source(const std::string& path, const std::vector<Named>& tensors) {
  std::vector<safetensors::HeaderTensor> header;
  std::string data;
  for (const Named& tensor : tensors) {
    const uint64_t at = data.size();
    for (int64_t i = 0; i < *layout::Product(tensor.shape); ++i) {
      const auto value = static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    header.push_back({tensor.key, DType::kFloat32, tensor.shape, at, data.size()});
  }
  const auto text = safetensors::WriteHeader(header, {});
  EXPECT_TRUE(text.ok());
  std::ofstream(path, std::ios::binary) << *text << data;
  auto catalog = ReadCatalog(path);
  EXPECT_TRUE(catalog.ok()) << catalog.status().ToString();
  return std::move(catalog).value();
}

void AddGroups(Catalog* catalog, std::vector<double> decays, double rate_factor = 1) {
  for (size_t i = 0; i < decays.size(); ++i) {
    const std::string group = "optimizer.param_groups." + std::to_string(i) + ".";
    catalog->AddObject(ScalarObject(group + "wd_mult", Values::Value(decays[i])));
    catalog->AddObject(ScalarObject(group + "lr_mult", Values::Value(rate_factor)));
    catalog->AddObject(ScalarObject(group + "lr", Values::Value(0.5)));
    catalog->AddObject(ScalarObject(group + "step", Values::Value(7.0)));
  }
}

Result<Converted> Write(const Catalog& source, const std::string& to, LayOptions lay) {
  ConvertOptions options;
  options.to_format = "megatron-legacy";
  options.lay = lay;
  options.step = 3;
  return ConvertCatalog(source, to, options, checkpoint::PosixFileSystem());
}

// The elements of a tensor of a rank's file, row-major.
std::vector<float> Elements(const Catalog& catalog, const std::string& key, const Shape& shape) {
  for (uint32_t i = 0; i < catalog.tensors().size(); ++i) {
    if (catalog.tensors()[i].key != key) continue;
    EXPECT_EQ(catalog.tensors()[i].shape, shape) << key;
    for (const CatalogPiece& piece : catalog.pieces())
      if (piece.tensor == i) {
        std::vector<float> found(piece.bytes / sizeof(float));
        std::memcpy(found.data(), catalog.files()[piece.file]->text().data() + piece.at, piece.bytes);
        return found;
      }
  }
  ADD_FAILURE() << "'" << key << "' is not there";
  return {};
}

Catalog RankFile(const std::string& root, const std::string& rank, const std::string& file = "model_optim_rng.pt") {
  auto catalog = ReadCatalog(root + "/iter_0000003/" + rank + "/" + file, "torch");
  EXPECT_TRUE(catalog.ok()) << catalog.status().ToString();
  return std::move(catalog).value();
}

const std::vector<Named> kGpt = {{"embedding.word_embeddings.weight", {4, 2}},
                                 {"decoder.layers.self_attention.linear_proj.weight", {2, 2, 4}},
                                 {"decoder.layers.mlp.linear_fc1.weight", {2, 8, 2}},
                                 {"decoder.layers.mlp.linear_fc2.weight", {2, 2, 4}},
                                 {"decoder.layers.mlp.linear_fc2.bias", {2, 2}},
                                 {"decoder.final_layernorm.weight", {2}}};

TEST(MegatronLegacyWriter, GivesEveryRankItsPartOfItsStagesLayers) {
  const TemporaryFolder folder;
  const Catalog source = Source(folder / "a.safetensors", kGpt);
  LayOptions lay;
  lay.shards = lay.stages = 2;
  const auto written = Write(source, folder / "out", lay);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  const Catalog last = RankFile(folder / "out", "mp_rank_01_001");
  const std::string layer = "model.decoder.layers.0.";
  // Of layer 1 the second half of the gate, and of the rest.
  EXPECT_EQ(Elements(last, layer + "mlp.linear_fc1.weight", {4, 2}),
            (std::vector<float>{20, 21, 22, 23, 28, 29, 30, 31}));
  EXPECT_EQ(Elements(last, layer + "mlp.linear_fc2.weight", {2, 2}), (std::vector<float>{10, 11, 14, 15}));
  EXPECT_EQ(Elements(last, layer + "self_attention.linear_proj.weight", {2, 2}), (std::vector<float>{10, 11, 14, 15}));
  EXPECT_EQ(Elements(last, layer + "mlp.linear_fc2.bias", {2}), (std::vector<float>{2, 3}));
  EXPECT_EQ(Elements(last, "model.decoder.final_layernorm.weight", {2}), (std::vector<float>{0, 1}));
  // Tied weights: the last stage has a copy of its part.
  EXPECT_EQ(Elements(last, "model.output_layer.weight", {2, 2}), (std::vector<float>{4, 5, 6, 7}));
  const Catalog first = RankFile(folder / "out", "mp_rank_00_000");
  EXPECT_EQ(Elements(first, "model.embedding.word_embeddings.weight", {2, 2}), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(Elements(first, layer + "mlp.linear_fc1.weight", {4, 2}), (std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(first.tensors().size(), 5u);
}

TEST(MegatronLegacyWriter, LaysADistributedOptimizersBufferFromTheLastParameterToTheFirst) {
  const TemporaryFolder folder;
  std::vector<Named> tensors = {{"embedding.word_embeddings.weight", {4, 2}}, {"decoder.final_layernorm.weight", {2}}};
  for (const char* state : {"exp_avg", "exp_avg_sq"})
    for (int i = 0; i < 2; ++i)
      tensors.push_back({"optimizer.state." + std::string(state) + "." + tensors[static_cast<size_t>(i)].key,
                         tensors[static_cast<size_t>(i)].shape});
  Catalog source = Source(folder / "a.safetensors", tensors);
  AddGroups(&source, {0, 1});
  LayOptions lay;
  lay.shards = 2;
  lay.distributed_optimizer = true;
  const auto written = Write(source, folder / "out", lay);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  // The norm, room up to 64, the rank's rows.
  std::ifstream file(folder / "out/iter_0000003/mp_rank_01/distrib_optim.pt", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<float> buffer(68);
  buffer[1] = 1;
  for (int i = 0; i < 4; ++i) buffer[static_cast<size_t>(64 + i)] = static_cast<float>(4 + i);
  const std::string wanted(reinterpret_cast<const char*>(buffer.data()), buffer.size() * sizeof(float));
  size_t found = 0;
  for (size_t at = bytes.find(wanted); at != std::string::npos; at = bytes.find(wanted, at + 1)) ++found;
  EXPECT_EQ(found, 3u);  // weights and both moments
  ASSERT_EQ(written->notes.size(), 1u);
  EXPECT_NE(written->notes[0].find("one bucket"), std::string::npos) << written->notes[0];
  EXPECT_FALSE(std::filesystem::exists(folder / "out/iter_0000003/mp_rank_02"));
}

TEST(MegatronLegacyWriter, CallsLayerNormsAsTheModelsModulesDo) {
  const TemporaryFolder folder;
  for (const char* modules : {"local", "transformer_engine"}) {
    Catalog source = Source(folder / (modules + ".safetensors"s),
                            {{"decoder.layers.self_attention.linear_qkv.layer_norm_weight", {1, 2}},
                             {"decoder.layers.mlp.linear_fc1.layer_norm_bias", {1, 2}}});
    source.AddObject(ScalarObject("args.transformer_impl", Values::Value(std::string(modules))));
    const auto written = Write(source, folder / modules, {});
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    const Catalog rank = RankFile(folder / modules, "mp_rank_00");
    const bool is_local = modules == "local"s;
    Elements(rank,
             is_local ? "model.decoder.layers.0.input_layernorm.weight"
                      : "model.decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
             {2});
    Elements(rank,
             is_local ? "model.decoder.layers.0.pre_mlp_layernorm.bias"
                      : "model.decoder.layers.0.mlp.linear_fc1.layer_norm_bias",
             {2});
  }
}

TEST(MegatronLegacyWriter, RefusesByNameWhatItCannotWrite) {
  const TemporaryFolder folder;
  const std::vector<Named> trained = {{"decoder.final_layernorm.weight", {2}},
                                      {"optimizer.state.exp_avg.decoder.final_layernorm.weight", {2}},
                                      {"optimizer.state.exp_avg_sq.decoder.final_layernorm.weight", {2}}};
  struct Case {
    std::vector<Named> tensors;
    std::function<void(Catalog*)> change;
    std::string wanted;
    int shards = 2, stages = 1;
  };
  const std::vector<Case> cases = {
      {{{"decoder.layers.0.mlp.experts.local_experts.0.linear_fc1.weight", {2, 2}}}, {}, "experts"},
      {{{"model.layers.0.mlp.up_proj.weight", {2, 2}}}, {}, "layers.0.mlp.up_proj.weight"},
      {{{"embedding.word_embeddings.weight", {5, 2}}}, {}, "axis 0 of 5"},
      {{{"decoder.layers.0.mlp.linear_fc1.weight_w", {4, 2}}}, {}, "other half"},
      {{{"decoder.layers.0.input_layernorm.weight", {2}}}, {}, "1 layers are no equal parts of 2 stages", 1, 2},
      {trained, {}, "none is known"},
      {trained,
       [](Catalog* catalog) {
         AddGroups(catalog, {1, 0}, 0.5);
       },
       "a rate of its own"},
      {trained,
       [](Catalog* catalog) {
         AddGroups(catalog, {1, 1});
       },
       "with and without weight decay"},
      {{trained[0], trained[1]},
       [](Catalog* catalog) {
         AddGroups(catalog, {1, 0});
       },
       "'exp_avg_sq' is missing"},
  };
  int number = 0;
  for (const Case& one : cases) {
    Catalog source = Source(folder / (std::to_string(++number) + ".safetensors"), one.tensors);
    if (one.change) one.change(&source);
    LayOptions lay;
    lay.shards = one.shards;
    lay.stages = one.stages;
    lay.distributed_optimizer = true;
    const auto written = Write(source, folder / ("out" + std::to_string(number)), lay);
    ASSERT_FALSE(written.ok()) << one.wanted;
    EXPECT_NE(written.status().message().find(one.wanted), std::string::npos) << written.status().message();
    EXPECT_FALSE(std::filesystem::exists(folder / ("out" + std::to_string(number))));
  }
}

}  // namespace
}  // namespace kintsugi::formats
