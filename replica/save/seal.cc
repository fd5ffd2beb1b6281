#include "replica/save/seal.h"

#include "replica/save/checksum.h"

namespace kintsugi::checkpoint {
namespace {

constexpr std::string_view kHead = "{\"body\":";
constexpr std::string_view kMiddle = ",\"digest\":\"";
constexpr std::string_view kTail = "\"}\n";
constexpr size_t kDigestDigits = 16;
constexpr int kDepthMax = 8;

std::string DigestText(std::string_view body) {
  return ToHex(ChecksumOf({reinterpret_cast<const uint8_t*>(body.data()), body.size()}));
}

JsonSource SourceOf(std::string_view name) {
  return {.place = "'" + std::string(name) + "'",
          .code = StatusCode::kDataLoss,
          .remedy = "use another checkpoint",
          .depth_max = kDepthMax};
}

}  // namespace

std::string Seal(const std::string& body) {
  std::string text;
  text.reserve(body.size() + 64);
  return text.append(kHead).append(body).append(kMiddle).append(DigestText(body)).append(kTail);
}

Result<std::string_view> SealedBody(std::string_view text, std::string_view name) {
  const auto bad = [&](const char* what) {
    return Status(StatusCode::kDataLoss, "'" + std::string(name) + "' " + what + ": use another checkpoint");
  };
  const size_t frame = kHead.size() + kMiddle.size() + kDigestDigits + kTail.size();
  if (text.size() < frame || !text.starts_with(kHead) || !text.ends_with(kTail)) return bad("is torn");
  const std::string_view body = text.substr(kHead.size(), text.size() - frame);
  const std::string_view rest = text.substr(kHead.size() + body.size());
  if (!rest.starts_with(kMiddle)) return bad("is torn");
  if (rest.substr(kMiddle.size(), kDigestDigits) != DigestText(body)) return bad("does not match its own digest");
  return body;
}

Result<JsonDocument> Unseal(std::string_view text, std::string_view name) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view body, SealedBody(text, name));
  return JsonDocument::Parse(body, SourceOf(name));
}

Status ReadJson(const JsonField& field, RanksBelow ranks) {
  std::vector<int64_t> numbers;
  KINTSUGI_RETURN_IF_ERROR(ReadJson(field, AtMost(&numbers, static_cast<uint64_t>(ranks.limit))));
  ranks.into->reserve(numbers.size());
  for (const int64_t number : numbers) {
    if (number >= ranks.limit || (!ranks.into->empty() && number <= ranks.into->back().value()))
      return field.Fail("has ranks that do not ascend or are not below " + std::to_string(ranks.limit));
    ranks.into->emplace_back(static_cast<int32_t>(number));
  }
  return Status::Ok();
}

}  // namespace kintsugi::checkpoint
