// What is read of checkpoints that others wrote: pickles, zips, safetensors headers, indexes, DCP metadata, our
// sidecar. The first byte chooses the reader. What is accepted lies within the input and, where we can write it, comes
// back equal.
#include "replica/formats/dcp/metadata.h"
#include "replica/formats/paddle/arrays.h"
#include "replica/formats/paddle/metadata.h"
#include "replica/formats/pickle/writer.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/safetensors/index.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/zip/zip.h"
#include "runtime/base/check.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::formats;

template <typename T>
bool Accepts(const Result<T>& result) {
  KINTSUGI_CHECK(result.ok() || !result.status().message().empty(), "a refusal without a reason");
  return result.ok();
}

bool TryPickle(std::string_view bytes) {
  const auto tree = pickle::Parse(bytes, "file");
  if (!Accepts(tree)) return false;
  pickle::PickleWriter writer;
  if (!WriteNode(*tree, tree->root, "file", &writer).ok()) return true;
  const std::string again = writer.Finish();
  const auto back = pickle::Parse(again, "file");
  KINTSUGI_CHECK(back.ok(), "a pickle of ours is refused: " + back.status().message());
  pickle::PickleWriter twice;
  KINTSUGI_CHECK(WriteNode(*back, back->root, "file", &twice).ok() && twice.Finish() == again,
                 "a pickle comes back changed");
  return true;
}

bool TryZip(std::string_view bytes) {
  const auto entries = zip::ReadDirectory(bytes, "file");
  if (!Accepts(entries)) return false;
  for (const zip::Entry& entry : *entries)
    KINTSUGI_CHECK(entry.at <= bytes.size() && entry.size_bytes <= bytes.size() - entry.at,
                   "a record outside of its zip");
  (void)torch::OpenArchive(bytes, "file");
  return true;
}

bool TryHeader(std::string_view bytes) {
  const auto header = safetensors::ReadHeader(bytes, "file");
  if (!Accepts(header)) return false;
  for (const auto& tensor : header->tensors)
    KINTSUGI_CHECK(tensor.begin <= tensor.end && tensor.end <= bytes.size() - header->data_at,
                   "a tensor outside of its file");
  return true;
}

bool TryIndex(std::string_view bytes) {
  const auto index = safetensors::DecodeIndex(bytes, "file");
  if (!Accepts(index)) return false;
  const auto again = safetensors::DecodeIndex(safetensors::EncodeIndex(*index), "file");
  KINTSUGI_CHECK(again.ok() && again->file_of == index->file_of, "an index comes back changed");
  return true;
}

bool TryMetadata(std::string_view bytes) {
  const auto metadata = dcp::Decode(bytes, "file");
  if (!Accepts(metadata)) return false;
  const std::string again = dcp::Encode(*metadata);
  const auto back = dcp::Decode(again, "file");
  KINTSUGI_CHECK(back.ok() && dcp::Encode(*back) == again, "DCP metadata come back changed");
  return true;
}

bool TryPaddle(std::string_view bytes) {
  (void)Accepts(paddle::ReadArrays(bytes, "file"));
  const auto metadata = paddle::Decode(bytes, "file");
  if (!Accepts(metadata)) return false;
  const std::string again = paddle::Encode(*metadata);
  const auto back = paddle::Decode(again, "file");
  KINTSUGI_CHECK(back.ok() && paddle::Encode(*back) == again, "Paddle's metadata come back changed");
  return true;
}

std::string ZipSeed() {
  OutlineFile file;
  zip::Layer layer(&file, "archive");
  pickle::PickleWriter writer;
  torch::WriteTensor("0", DType::kFloat32, {2, 3}, &writer);
  layer.AddBytes("data.pkl", writer.Finish());
  torch::AddSmallRecords(&layer);
  layer.AddBytes("data/0", std::string(24, 'x'));
  torch::AddVersion(&layer);
  layer.Finish();
  std::string bytes;
  for (const Segment& segment : file.segments)
    bytes += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  return bytes;
}

}  // namespace

bool Try(std::string_view input) {
  switch (TakeByte(&input) % 7) {
    case 0:
      return TryPickle(input);
    case 1:
      return TryZip(input);
    case 2:
      return TryHeader(input);
    case 3:
      return TryIndex(input);
    case 4:
      return TryMetadata(input);
    case 6:
      return TryPaddle(input);
    default:
      return Accepts(DecodeSidecar(std::string(input), "file"));
  }
}

std::vector<std::string> Seeds() {
  const auto with = [](char reader, const std::string& bytes) { return std::string(1, reader) + bytes; };
  std::vector<std::string> seeds;
  pickle::PickleWriter writer;
  writer.EmptyDict();
  writer.Mark();
  writer.Text("values");
  writer.Mark();
  writer.Int(-5);
  writer.Int(1 << 20);
  writer.Float(0.5);
  writer.Bool(true);
  writer.None();
  writer.Bytes("\xff\x01");
  writer.Tuple();
  writer.SetItems();
  seeds.push_back(with(0, writer.Finish()));
  seeds.push_back(with(1, ZipSeed()));
  const auto header = safetensors::WriteHeader({{"w", DType::kFloat32, {2}, 0, 8}}, {{"format", "pt"}});
  seeds.push_back(with(2, *header + std::string(8, 'x')));
  seeds.push_back(with(3, safetensors::EncodeIndex({{{"w", "model-00001-of-00002.safetensors"}}, 8})));
  dcp::Metadata metadata;
  metadata.tensors.push_back({"w", DType::kBFloat16, {4, 2}, {{{0, 0}, {2, 2}}, {{2, 0}, {2, 2}}}});
  metadata.objects.push_back("step");
  metadata.paths = {{"w", PathOf("w")}, {"step", PathOf("step")}};
  metadata.stored = {{"w", Shape{0, 0}, "__0_0.distcp", 0, 100}, {"step", std::nullopt, "__0_0.distcp", 100, 20}};
  seeds.push_back(with(4, dcp::Encode(metadata)));
  paddle::Metadata local;
  local.tensors.push_back({"w", DType::kBFloat16, {4, 2}, {{{0, 0}, {4, 2}, FlatRange{1, 7}}}});
  local.stored.push_back({"w", {0, 0}, Shape{4, 2}, FlatRange{1, 7}, "0_0.distcp"});
  local.paths = {{"w", PathOf("w")}};
  seeds.push_back(with(6, paddle::Encode(local)));
  Sidecar sidecar{"dcp", 7, {}};
  WrittenFile file;
  file.name = "a/b";
  file.size_bytes = 3;
  file.blocks = {1};
  sidecar.files.push_back(file);
  seeds.push_back(with(5, EncodeSidecar(sidecar)));
  return seeds;
}

}  // namespace kintsugi::fuzz
