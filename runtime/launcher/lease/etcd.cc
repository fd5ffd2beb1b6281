#include "runtime/launcher/lease/etcd.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/json.h"

namespace kintsugi::etcd {
namespace {

using nlohmann::json;

constexpr size_t kDigits = 20;  // of the largest generation: as text of one width they compare like numbers
constexpr size_t kShown = 200;

std::string Base64(const std::string& bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(length));
  return out;
}
std::string FromBase64(const std::string& text) {
  std::string out(text.size() / 4 * 3 + 3, '\0');
  const int length =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  if (length < 0) return "";
  const auto padding =
      static_cast<size_t>(std::count(text.end() - std::min<long>(2, text.end() - text.begin()), text.end(), '='));
  out.resize(static_cast<size_t>(length) - padding);
  return out;
}

std::string Key(const std::string& run, const char* what) { return Base64("kintsugi/" + run + "/" + what); }
std::string Digits(uint64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}
std::string Text(int64_t number) { return std::to_string(number); }

json Missing(const std::string& key) {
  return {{"key", key}, {"target", "VERSION"}, {"result", "EQUAL"}, {"version", "0"}};
}
// Not newer than this one. False where there is none.
json NotNewer(const std::string& run, Generation generation) {
  return {{"key", Key(run, "generation")},
          {"target", "VALUE"},
          {"result", "LESS"},
          {"value", Base64(Digits(generation.value() + 1))}};
}
json PutGeneration(const std::string& run, const std::string& digits) {
  return {{"key", Key(run, "generation")}, {"value", Base64(digits)}};
}

Status NoAnswer(const net::HttpAnswer& answer) {
  return {StatusCode::kDataLoss, "status " + std::to_string(answer.status) + ", '" + answer.body.substr(0, kShown) +
                                     "' where etcd's answer belongs"};
}

Result<JsonDocument> Parse(const net::HttpAnswer& answer) {
  auto parsed = JsonDocument::Parse(answer.body);
  if (answer.status != 200 || !parsed.ok() || !parsed->Root().IsObject()) return NoAnswer(answer);
  return parsed;
}

// etcd leaves zeros out.
std::optional<int64_t> Number(const JsonField& object, const char* name) {
  const auto field = object.Find(name);
  if (!field) return 0;
  if (const auto number = field->Integer(); number.ok()) return *number;
  const auto text = field->Text();
  if (!text.ok()) return std::nullopt;
  int64_t value = 0;
  const auto read = std::from_chars(text->data(), text->data() + text->size(), value);
  if (read.ec != std::errc() || read.ptr != text->data() + text->size()) return std::nullopt;
  return value;
}

Result<Lease> LeaseOf(const JsonField& object, const net::HttpAnswer& answer) {
  const auto id = Number(object, "ID"), seconds = Number(object, "TTL");
  if (!id || *id == 0 || !seconds || *seconds < 0 || *seconds > 1'000'000) return NoAnswer(answer);
  return Lease{*id, std::chrono::seconds(*seconds)};
}

}  // namespace

Request Grant(Duration length) {
  return {"/v3/lease/grant",
          json{{"TTL", Text(std::chrono::duration_cast<std::chrono::seconds>(length).count())}}.dump()};
}
Result<Lease> ReadLease(const net::HttpAnswer& answer) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument parsed, Parse(answer));
  return LeaseOf(parsed.Root(), answer);
}

Request Renew(int64_t lease) { return {"/v3/lease/keepalive", json{{"ID", Text(lease)}}.dump()}; }
Result<Lease> ReadRenewed(const net::HttpAnswer& answer) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument parsed, Parse(answer));
  const auto result = parsed.Root().Find("result");
  if (!result || !result->IsObject()) return NoAnswer(answer);
  return LeaseOf(*result, answer);
}

Request Revoke(int64_t lease) { return {"/v3/lease/revoke", json{{"ID", Text(lease)}}.dump()}; }

Request Claim(const std::string& run, const std::string& who, int64_t lease, Generation generation) {
  const std::string holder = Key(run, "holder");
  const json put = {{"key", holder}, {"value", Base64(who)}, {"lease", Text(lease)}};
  return {"/v3/kv/txn", json{{"compare", json::array({Missing(holder), NotNewer(run, generation)})},
                             {"success", json::array({{{"request_put", put}}})},
                             {"failure", json::array({{{"request_range", {{"key", holder}}}}})}}
                            .dump()};
}
Result<Claimed> ReadClaimed(const net::HttpAnswer& answer, int64_t lease) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument parsed, Parse(answer));
  bool succeeded = false;
  if (parsed.Root().ReadIfAny("succeeded", &succeeded).ok() && succeeded) return Claimed{true, ""};
  const auto responses = parsed.Root().ListOf("responses");
  if (!responses.ok() || responses->empty()) return NoAnswer(answer);
  const auto range = responses->front().Find("response_range");
  if (!range) return NoAnswer(answer);
  const auto found = range->ListOf("kvs");
  if (!found.ok() || found->empty() || !found->front().IsObject()) return Claimed{false, ""};
  const JsonField& holder = found->front();
  if (Number(holder, "lease") == lease) return Claimed{true, ""};
  std::string value;
  return Claimed{false, holder.Read("value", &value).ok() ? FromBase64(value) : "somebody"};
}

Request Record(const std::string& run, Generation generation) {
  const json put = {{"request_put", PutGeneration(run, Digits(generation.value()))}};
  const json first = {{"compare", json::array({Missing(Key(run, "generation"))})}, {"success", json::array({put})}};
  return {"/v3/kv/txn", json{{"compare", json::array({NotNewer(run, generation)})},
                             {"success", json::array({put})},
                             {"failure", json::array({{{"request_txn", first}}})}}
                            .dump()};
}
Result<bool> ReadDone(const net::HttpAnswer& answer) {
  KINTSUGI_RETURN_IF_ERROR(Parse(answer).status());
  return true;
}

Request Look(const std::string& run) { return {"/v3/kv/range", json{{"key", Key(run, "generation")}}.dump()}; }
Result<bool> ReadFound(const net::HttpAnswer& answer) {
  KINTSUGI_ASSIGN_OR_RETURN(const JsonDocument parsed, Parse(answer));
  const auto found = parsed.Root().ListOf("kvs");
  return found.ok() && !found->empty();
}

Request CloseRun(const std::string& run) {
  return {"/v3/kv/put", PutGeneration(run, std::string(kDigits, '9')).dump()};
}

}  // namespace kintsugi::etcd
