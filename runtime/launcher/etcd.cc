#include "runtime/launcher/etcd.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

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

Result<json> Parse(const net::HttpAnswer& answer) {
  json parsed = json::parse(answer.body, nullptr, false);
  if (answer.status != 200 || !parsed.is_object()) return NoAnswer(answer);
  return parsed;
}

// etcd leaves zeros out.
std::optional<int64_t> Number(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return 0;
  int64_t value = 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (!found->is_string()) return std::nullopt;
  const std::string text = found->get<std::string>();
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

const json* Member(const json& object, const char* field) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(field);
  return found == object.end() ? nullptr : &*found;
}

Result<Lease> LeaseOf(const json& object, const net::HttpAnswer& answer) {
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
  KINTSUGI_ASSIGN_OR_RETURN(const json parsed, Parse(answer));
  return LeaseOf(parsed, answer);
}

Request Renew(int64_t lease) { return {"/v3/lease/keepalive", json{{"ID", Text(lease)}}.dump()}; }
Result<Lease> ReadRenewed(const net::HttpAnswer& answer) {
  KINTSUGI_ASSIGN_OR_RETURN(const json parsed, Parse(answer));
  const json* result = Member(parsed, "result");
  if (!result || !result->is_object()) return NoAnswer(answer);
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
  KINTSUGI_ASSIGN_OR_RETURN(const json parsed, Parse(answer));
  if (const json* succeeded = Member(parsed, "succeeded"); succeeded && succeeded->is_boolean() && *succeeded)
    return Claimed{true, ""};
  const json* responses = Member(parsed, "responses");
  if (!responses || !responses->is_array() || responses->empty()) return NoAnswer(answer);
  const json* range = Member(responses->front(), "response_range");
  if (!range) return NoAnswer(answer);
  const json* found = Member(*range, "kvs");
  if (!found || !found->is_array() || found->empty() || !found->front().is_object()) return Claimed{false, ""};
  const json& holder = found->front();
  if (Number(holder, "lease") == lease) return Claimed{true, ""};
  const json* value = Member(holder, "value");
  return Claimed{false, value && value->is_string() ? FromBase64(value->get<std::string>()) : "somebody"};
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
  KINTSUGI_ASSIGN_OR_RETURN(const json parsed, Parse(answer));
  const json* found = Member(parsed, "kvs");
  return found && found->is_array() && !found->empty();
}

Request CloseRun(const std::string& run) {
  return {"/v3/kv/put", PutGeneration(run, std::string(kDigits, '9')).dump()};
}

}  // namespace kintsugi::etcd
