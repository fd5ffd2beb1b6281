// What else is read of checkpoints that others wrote, beside what has a target of its own (zip, pickle, safetensors_header,
// hf_index, dcp_metadata): our sidecar, Paddle's metadata and arrays; parts and manifests of native checkpoints, which
// are sealed here, so that what lies behind the seal is reached. The first byte chooses the reader. What is accepted
// comes back equal.
#include "replica/formats/paddle/arrays.h"
#include "replica/formats/paddle/metadata.h"
#include "replica/formats/sidecar.h"
#include "replica/formats/values.h"
#include "replica/save/manifest.h"
#include "replica/save/seal.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

using namespace kintsugi::formats;

bool TrySidecar(std::string_view text) {
  const auto sidecar = DecodeSidecar(std::string(text), "file");
  if (!Accepts(sidecar)) return false;
  const std::string again = EncodeSidecar(*sidecar);
  const auto back = DecodeSidecar(again, "file");
  KINTSUGI_CHECK(back.ok() && EncodeSidecar(*back) == again, "a sidecar comes back changed");
  return true;
}

bool TryPaddle(std::string_view bytes) {
  const auto arrays = paddle::ReadArrays(bytes, "file");
  if (Accepts(arrays))
    for (const auto& [key, array] : arrays->arrays)
      KINTSUGI_CHECK(array.at <= bytes.size() && array.bytes <= bytes.size() - array.at,
                     "an array outside of its file");
  const auto metadata = paddle::Decode(bytes, "file");
  if (!Accepts(metadata)) return arrays.ok();
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
  const auto body = checkpoint::SealedBody(sealed, "file");
  KINTSUGI_CHECK(body.ok(), body.status().message());
  return std::string(*body);
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

// A file with what a run keeps beside its tensors.
std::string ArraysSeed() {
  const std::vector<CatalogObject> objects = {ScalarObject("samples", int64_t{7}),
                                              ScalarObject("style", std::string("cosine")),
                                              {"rng", CatalogObject::Form::kBytes, "\x01\x02", {}}};
  OutlineFile file;
  const Status laid = paddle::LayArrays({}, {}, objects, &file);
  KINTSUGI_CHECK(laid.ok(), laid.message());
  return BytesOf(file);
}

}  // namespace

bool Try(std::string_view input) {
  switch (TakeByte(&input) % 4) {
    case 0:
      return TrySidecar(input);
    case 1:
      return TryPaddle(input);
    case 2:
      return TryNative(input, checkpoint::DecodePart);
    default:
      return TryNative(input, checkpoint::DecodeManifest);
  }
}

std::vector<std::string> Seeds() {
  const auto with = [](char reader, const std::string& bytes) { return std::string(1, reader) + bytes; };
  Sidecar sidecar{"dcp", 7, {}};
  WrittenFile file;
  file.name = "a/b";
  file.size_bytes = 3;
  file.blocks = {1};
  sidecar.files.push_back(file);
  paddle::PaddleMetadata local;
  local.tensors.push_back({"w", DType::kBFloat16, {4, 2}, {{{0, 0}, {4, 2}, FlatRange{1, 7}}}});
  local.stored.push_back({"w", {0, 0}, Shape{4, 2}, FlatRange{1, 7}, "0_0.distcp"});
  local.paths = {{"w", PathOf("w")}};
  const auto [part, manifest] = NativeSeeds();
  return {with(0, EncodeSidecar(sidecar)), with(1, paddle::Encode(local)), with(1, ArraysSeed()), with(2, part),
          with(3, manifest)};
}

}  // namespace kintsugi::fuzz
