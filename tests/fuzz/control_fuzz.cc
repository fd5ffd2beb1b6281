// A request on the control socket: what is accepted is a JSON object whose words are texts; what is refused says why,
// in one line that is JSON again.
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/inject/injection.h"
#include "runtime/launcher/run/control_words.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {
namespace {

// What the launcher does with a text of the request that it quotes.
void MustBeOneLineOfJson(const std::string& line) {
  KINTSUGI_CHECK(line.find('\n') == std::string::npos, "an answer of several lines");
  KINTSUGI_CHECK(nlohmann::json::accept(line), "an answer that is no JSON: " + line);
}

}  // namespace

bool Try(std::string_view input) {
  const std::vector<char> exact(input.begin(), input.end());  // no byte behind its end
  const auto words = ReadControlWords({exact.data(), exact.size()});
  if (!words.ok()) {
    KINTSUGI_CHECK(words.status().code() == StatusCode::kInvalidArgument, words.status().ToString());
    KINTSUGI_CHECK(words.status().message().size() < 4096, "a message as long as the request");
    MustBeOneLineOfJson(RefusalLine(words.status().message()));
    return false;
  }
  MustBeOneLineOfJson(RefusalLine("unknown command '" + words->command + "'"));
  MustBeOneLineOfJson(RefusalLine(std::string(input)));  // any bytes
  const auto injection = ParseInjection(words->spec);
  MustBeOneLineOfJson(injection.ok() ? AnswerLine({{"spec", ToString(*injection)}})
                                     : RefusalLine(injection.status().message()));
  const nlohmann::json written{{"command", words->command}, {"spec", words->spec}};
  const auto again = ReadControlWords(written.dump());
  KINTSUGI_CHECK(again.ok() && again->command == words->command && again->spec == words->spec, "read otherwise");
  return true;
}

std::vector<std::string> Seeds() {
  return {R"({"command":"status"})",
          R"({"command":"incidents"})",
          R"({"command":"save"})",
          R"({"command":"stop"})",
          R"({"command":"inject","spec":"kill:2@20:update"})",
          R"({"command":"inject","spec":"uce:0@9:update,level=high","more":[1,{"a":null}]})"};
}

}  // namespace kintsugi::fuzz
