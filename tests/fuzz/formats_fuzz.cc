// What is read of checkpoints that others wrote: pickles, zips, safetensors headers, indexes, DCP metadata, our
// sidecar; parts and manifests of native ones, which are sealed here, so that what lies behind the seal is reached. The
// first byte chooses the reader. What is accepted lies within the input and, where we can write it, comes
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
#include "replica/save/json_fields.h"
#include "replica/save/manifest.h"
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

// A native document of either kind, by the body that its seal is around.
template <typename Document>
bool TryNative(std::string_view body, Result<Document> (*decode)(const std::string& text, const std::string& name)) {
  const auto document = decode(checkpoint::Seal(std::string(body)), "file");
  if (!Accepts(document)) return false;
  const std::string again = checkpoint::Encode(*document);
  const auto back = decode(again, "file");
  KINTSUGI_CHECK(back.ok() && checkpoint::Encode(*back) == again, "a native document comes back changed");
  return true;
}

std::string BodyOf(const std::string& sealed) {
  const auto body = checkpoint::Unseal(sealed, "file");
  KINTSUGI_CHECK(body.ok(), body.status().message());
  return body->dump();
}

// A part with a tensor of two names, in two blocks, and its manifest.
std::pair<std::string, std::string> NativeSeeds() {
  checkpoint::Part part;
  part.identity = {"job", Step(7), Generation(2), 2};
  part.layouts = {0};
  checkpoint::StoredTensor stored;
  stored.tensor.key = "w";
  stored.tensor.dtype = DType::kUInt8;
  const auto size = static_cast<int64_t>(checkpoint::kBlockBytes + 1);
  stored.tensor.global_shape = stored.tensor.local_shape = {size};
  stored.tensor.global_offset = {0};
  stored.aliases = {"tied"};
  stored.extent = {"layout0.shard-0-1.bin", 0, static_cast<uint64_t>(size), {1, 2}};
  stored.extent.sub_blocks.assign(checkpoint::SubBlockCount(stored.extent.size_bytes), 3);
  part.shards.push_back({0, {Rank(0), Rank(1)}, stored.extent.file, stored.extent.size_bytes, {stored}});
  const std::string text = checkpoint::Encode(part);
  checkpoint::Manifest manifest{part.identity, true, {checkpoint::List(part, text)}, {}, {}};
  manifest.side_files.push_back({"config.json", {"side.config.json", 0, 3, {4}}});
  return {BodyOf(text), BodyOf(checkpoint::Encode(manifest))};
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
  switch (TakeByte(&input) % 9) {
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
    case 7:
      return TryNative(input, checkpoint::DecodePart);
    case 8:
      return TryNative(input, checkpoint::DecodeManifest);
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
  const auto header = safetensors::WriteHeader({{"w", DType::kFloat32, {2}, 0, 8}}, {{"format", "pt"}, {"tied", "w"}});
  seeds.push_back(with(2, *header + std::string(8, 'x')));
  seeds.push_back(with(3, safetensors::EncodeIndex({{{"w", "model-00001-of-00002.safetensors"}}, 8})));
  dcp::Metadata metadata;
  metadata.tensors.push_back({"w", DType::kBFloat16, {4, 2}, {{{0, 0}, {2, 2}}, {{2, 0}, {2, 2}}}});
  metadata.objects.push_back("step");
  metadata.paths = {{"w", PathOf("w")}, {"step", PathOf("step")}};
  metadata.stored = {{"w", Shape{0, 0}, "__0_0.distcp", 0, 100}, {"step", std::nullopt, "__0_0.distcp", 100, 20}};
  seeds.push_back(with(4, dcp::Encode(metadata)));
  // Tied: a second name for the same bytes.
  metadata.tensors.push_back({"tied", DType::kBFloat16, {4, 2}, metadata.tensors[0].chunks});
  metadata.stored.push_back({"tied", Shape{0, 0}, "__0_0.distcp", 0, 100});
  metadata.paths["tied"] = PathOf("tied");
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
  const auto [part, manifest] = NativeSeeds();
  seeds.push_back(with(7, part));
  seeds.push_back(with(8, manifest));
  return seeds;
}

}  // namespace kintsugi::fuzz
