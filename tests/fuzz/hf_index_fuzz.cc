// Indexes of Hugging Face shards. What is accepted names files in its own folder, and comes back equal when it is written
// again.
#include "replica/formats/hub/index.h"
#include "runtime/base/check.h"
#include "tests/fuzz/format_inputs.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {

using namespace kintsugi::formats;

bool Try(std::string_view input) {
  const auto index = hub::DecodeIndex(input, "file");
  if (!Accepts(index)) return false;
  for (const auto& [tensor, file] : index->file_of)
    KINTSUGI_CHECK(!file.empty() && file.front() != '/' && file.find('\0') == file.npos &&
                       ("/" + file + "/").find("/../") == std::string::npos,
                   "a file outside of its folder");
  const auto again = hub::DecodeIndex(hub::EncodeIndex(*index), "file");
  KINTSUGI_CHECK(again.ok() && again->file_of == index->file_of, "an index comes back changed");
  KINTSUGI_CHECK(again->total_bytes == index->total_bytes.value_or(0), "an index comes back with another size");
  return true;
}

std::vector<std::string> Seeds() {
  return {hub::EncodeIndex({{{"w", "model-00001-of-00002.safetensors"}}, 8}),
          hub::EncodeIndex({{{"w", "model-00001-of-00002.safetensors"}, {"v", "b/c.safetensors"}}, {}})};
}

}  // namespace kintsugi::fuzz
