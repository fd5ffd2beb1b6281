// Files of ranks as FSDP2 leaves them, made without torch: a tensor "w" of [5, 2] in parts of rows, a plain "buffer", a number.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "replica/formats/pickle/writer.h"
#include "replica/formats/torch/tensor.h"
#include "replica/formats/zip/zip.h"

namespace kintsugi::formats {

// What a test changes of it.
struct MadeUpRank {
  int64_t rank = 0, world = 2;
  Shape whole = {5, 2}, said = {5, 2};  // by the tensor, by its spec
  std::vector<int64_t> mesh = {};       // empty: 0 .. world - 1
  std::string placement = "Shard";
  int64_t axis = 0;
  float buffer = 7;
};

inline std::string MadeUpRankFile(const MadeUpRank& made) {
  pickle::PickleWriter writer;
  const auto object = [&](const char* module, const char* name, auto fill) {
    writer.Global(module, name);
    writer.EmptyTuple();
    writer.New();
    writer.EmptyDict();
    writer.Mark();
    fill();
    writer.SetItems();
    writer.Build();
  };
  const auto key = [&](const char* name) { writer.Text(name); };
  std::vector<int64_t> mesh = made.mesh;
  for (int64_t rank = 0; made.mesh.empty() && rank < made.world; ++rank) mesh.push_back(rank);
  const int64_t rows = 5, chunk = (rows + made.world - 1) / made.world;
  const int64_t first = std::min(rows, made.rank * chunk), last = std::min(rows, first + chunk);
  writer.EmptyDict();
  writer.Mark();
  key("w");
  writer.Global("torch._tensor", "_rebuild_from_type_v2");
  writer.Mark();
  writer.Global("torch._utils", "_rebuild_wrapper_subclass");
  writer.Global("torch.distributed.tensor", "DTensor");
  writer.Mark();
  writer.Global("torch.distributed.tensor", "DTensor");
  writer.Global("torch", "float32");
  writer.Numbers(made.whole);
  writer.Tuple();
  writer.EmptyDict();
  writer.Mark();
  key("_local_tensor");
  torch::WriteTensor("0", DType::kFloat32, {last - first, 2}, &writer);
  key("_spec");
  object("torch.distributed.tensor._dtensor_spec", "DTensorSpec", [&] {
    key("mesh");
    object("torch.distributed.device_mesh", "DeviceMesh", [&] {  // as torch had it until 2.8
      key("mesh");
      torch::WriteTensor("1", DType::kInt64, {static_cast<int64_t>(mesh.size())}, &writer);
      key("_coordinate_on_dim");
      writer.Numbers(std::vector<int64_t>{made.rank});
    });
    key("placements");
    writer.Mark();
    object("torch.distributed.tensor.placement_types", made.placement.c_str(), [&] {
      key("dim");
      writer.Int(made.axis);
    });
    writer.Tuple();
    key("tensor_meta");
    writer.Global("torch.distributed.tensor._dtensor_spec", "TensorMeta");
    writer.Mark();
    writer.Size(made.said);
    writer.Tuple();
    writer.New();
  });
  writer.SetItems();
  writer.Tuple();
  writer.Call();
  key("buffer");
  torch::WriteTensor("2", DType::kFloat32, {1}, &writer);
  key("epoch");
  writer.Int(3);
  writer.SetItems();

  OutlineFile file;
  zip::Layer layer(&file, "archive");
  layer.AddBytes("data.pkl", writer.Finish());
  const auto raw = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  std::vector<float> part;
  for (int64_t i = first * 2; i < last * 2; ++i) part.push_back(static_cast<float>(i));
  layer.AddBytes("data/0", raw(part));
  layer.AddBytes("data/1", raw(mesh));
  layer.AddBytes("data/2", raw(std::vector<float>{made.buffer}));
  layer.AddBytes("version", "3\n");
  layer.Finish();
  std::string bytes;
  for (const Segment& segment : file.segments)
    bytes += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  return bytes;
}

inline void WriteMadeUpRank(const std::string& folder, const MadeUpRank& made) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/model_rank_" + std::to_string(made.rank) + ".pt", std::ios::binary) << MadeUpRankFile(made);
}

}  // namespace kintsugi::formats
