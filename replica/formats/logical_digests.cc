#include "replica/formats/logical_digests.h"

#include <charconv>

#include "callbacks/state/key.h"
#include "replica/formats/compare.h"
#include "replica/save/file_system.h"
#include "replica/save/names.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace kintsugi::formats {
namespace {

constexpr uint64_t kDigestFileBytesMax = uint64_t{1} << 30;

std::optional<uint64_t> FromHex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16) return std::nullopt;
  return value;
}

Result<DigestsByKey> FromJson(const std::string& path) {
  const JsonSource source{.place = "'" + path + "'",
                          .code = StatusCode::kDataLoss,
                          .remedy = "make it with kintsugi ckpt show --digests CHECKPOINT"};
  KINTSUGI_ASSIGN_OR_RETURN(const std::string text,
                            checkpoint::ReadSmallFile(checkpoint::PosixFileSystem(), path, kDigestFileBytesMax));
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, source));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> tensors, document.Root().ListOf("tensors"));
  DigestsByKey digests;
  for (const JsonField& tensor : tensors) {
    std::string key;
    std::string_view sum;
    KINTSUGI_RETURN_IF_ERROR(tensor.Read("key", &key));
    if (tensor.Find("alias_of")) continue;
    KINTSUGI_RETURN_IF_ERROR(tensor.Read("digest", &sum));
    const auto digest = FromHex(sum);
    if (!digest) return tensor.Fail("has a digest that is not 16 hex digits");
    if (!digests.emplace(key, *digest).second) return tensor.Fail("'" + PrintableKey(key) + "' is there twice");
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

Result<DigestsByKey> ReadDigests(const std::string& path, const ReadOptions& options,
                                 const std::function<void(uint64_t, uint64_t)>& progress) {
  if (path.ends_with(".json") && IsFile(path) && !DetectFormat(path).ok()) return FromJson(path);
  KINTSUGI_ASSIGN_OR_RETURN(const Catalog catalog, ReadCatalog(path, "", options));
  return DigestsOf(catalog, progress);
}

DigestsMatch CompareDigests(const DigestsByKey& expected, const DigestsByKey& found) {
  DigestsMatch verdict;
  for (const auto& [key, digest] : expected) {
    const auto own = found.find(key);
    if (own == found.end())
      verdict.missing.push_back(key);
    else if (own->second != digest)
      verdict.other.push_back(key);
    else
      ++verdict.equal;
  }
  KINTSUGI_CHECK(verdict.equal + verdict.other.size() + verdict.missing.size() == expected.size() &&
                     verdict.equal + verdict.other.size() <= found.size(),
                 std::to_string(expected.size()) + " digests against " + std::to_string(found.size()) + ": " +
                     std::to_string(verdict.equal) + " equal, " + std::to_string(verdict.other.size()) + " other, " +
                     std::to_string(verdict.missing.size()) + " missing");
  verdict.more = found.size() - verdict.equal - verdict.other.size();
  return verdict;
}

}  // namespace kintsugi::formats
