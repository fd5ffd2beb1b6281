#include "replica/formats/logical_digests.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "callbacks/state/key.h"
#include "replica/formats/compare.h"
#include "replica/save/file_system.h"
#include "replica/save/names.h"

namespace kintsugi::formats {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kDigestFileBytesMax = uint64_t{1} << 30;

std::optional<uint64_t> FromHex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16) return std::nullopt;
  return value;
}

Result<DigestsByKey> FromJson(const std::string& path) {
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kDataLoss,
                  "'" + path + "': " + what + ": make it with kintsugi ckpt show --digests CHECKPOINT");
  };
  KINTSUGI_ASSIGN_OR_RETURN(const std::string text,
                            checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), path, kDigestFileBytesMax));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto tensors = json.is_object() ? json.find("tensors") : json.end();
  if (!json.is_object() || tensors == json.end() || !tensors->is_array()) return bad("it is no list of digests");
  DigestsByKey digests;
  for (const Json& tensor : *tensors) {
    if (!tensor.is_object() || !tensor.contains("key") || !tensor["key"].is_string())
      return bad("an entry of 'tensors' has no key");
    if (tensor.contains("alias_of")) continue;
    const std::string key = tensor["key"];
    const auto digest = tensor.contains("digest") && tensor["digest"].is_string()
                            ? FromHex(tensor["digest"].get_ref<const std::string&>())
                            : std::nullopt;
    if (!digest) return bad("'" + PrintableKey(key) + "' has no digest");
    if (!digests.emplace(key, *digest).second) return bad("'" + PrintableKey(key) + "' is there twice");
  }
  return digests;
}

}  // namespace

Result<DigestsByKey> DigestsOf(const Catalog& catalog, const std::function<void(uint64_t, uint64_t)>& progress) {
  KINTSUGI_ASSIGN_OR_RETURN(DigestsByKey digests, LogicalDigests(catalog, progress));
  for (const CatalogTensor& tensor : catalog.tensors())
    if (!tensor.alias_of.empty()) digests.erase(tensor.key);
  return digests;
}

Result<DigestsByKey> ReadDigests(const std::string& path, const std::function<void(uint64_t, uint64_t)>& progress) {
  if (path.ends_with(".json") && IsFile(path) && !DetectFormat(path).ok()) return FromJson(path);
  KINTSUGI_ASSIGN_OR_RETURN(const Catalog catalog, ReadCatalog(path, "", {.skip_objects = true}));
  return DigestsOf(catalog, progress);
}

DigestVerdict CompareDigests(const DigestsByKey& expected, const DigestsByKey& found) {
  DigestVerdict verdict;
  for (const auto& [key, digest] : expected) {
    const auto own = found.find(key);
    if (own == found.end())
      verdict.missing.push_back(key);
    else if (own->second != digest)
      verdict.other.push_back(key);
    else
      ++verdict.equal;
  }
  verdict.more = found.size() - verdict.equal - verdict.other.size();
  return verdict;
}

}  // namespace kintsugi::formats
