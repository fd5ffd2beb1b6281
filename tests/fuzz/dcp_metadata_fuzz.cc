// The .metadata of torch DCP folders. What is accepted names files in its own folder, has chunks of as many axes as their
// tensor, and comes back equal when it is written again.
#include "replica/formats/dcp/metadata.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {

using namespace kintsugi::formats;

bool Try(std::string_view input) {
  const auto metadata = dcp::Decode(input, "file");
  if (!Accepts(metadata)) return false;
  for (const dcp::TensorEntry& tensor : metadata->tensors)
    for (const dcp::Chunk& chunk : tensor.chunks)
      KINTSUGI_CHECK(chunk.offset.size() == tensor.shape.size() && chunk.shape.size() == tensor.shape.size(),
                     "a chunk of other axes than its tensor");
  for (const dcp::StorageEntry& stored : metadata->stored)
    KINTSUGI_CHECK(!stored.file.empty() && stored.file.front() != '/' &&
                       ("/" + stored.file + "/").find("/../") == std::string::npos,
                   "a file outside of its folder");
  const std::string again = dcp::Encode(*metadata);
  const auto back = dcp::Decode(again, "file");
  KINTSUGI_CHECK(back.ok() && dcp::Encode(*back) == again, "DCP metadata come back changed");
  KINTSUGI_CHECK(back->tensors.size() == metadata->tensors.size() && back->stored.size() == metadata->stored.size(),
                 "DCP metadata come back with more or fewer entries");
  return true;
}

std::vector<std::string> Seeds() {
  dcp::DcpMetadata metadata;
  metadata.tensors.push_back({"w", DType::kBFloat16, {4, 2}, {{{0, 0}, {2, 2}}, {{2, 0}, {2, 2}}}});
  metadata.objects.push_back("step");
  metadata.paths = {{"w", PathOf("w")}, {"step", PathOf("step")}};
  metadata.stored = {{"w", Shape{0, 0}, "__0_0.distcp", 0, 100}, {"step", std::nullopt, "__0_0.distcp", 100, 20}};
  std::vector<std::string> seeds{dcp::Encode(metadata)};
  // Tied: a second name for the same bytes.
  metadata.tensors.push_back({"tied", DType::kBFloat16, {4, 2}, metadata.tensors[0].chunks});
  metadata.stored.push_back({"tied", Shape{0, 0}, "__0_0.distcp", 0, 100});
  metadata.paths["tied"] = PathOf("tied");
  seeds.push_back(dcp::Encode(metadata));
  return seeds;
}

}  // namespace kintsugi::fuzz
