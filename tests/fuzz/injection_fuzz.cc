// The fault SPEC: what is accepted says the same when it is written down again; what is refused names a column.
#include "runtime/base/check.h"
#include "runtime/inject/injection.h"
#include "tests/fuzz/fuzz_target.h"

namespace kintsugi::fuzz {

bool Try(std::string_view input) {
  const std::vector<char> exact(input.begin(), input.end());  // no byte behind its end
  const auto injection = ParseInjection({exact.data(), exact.size()});
  if (!injection.ok()) {
    KINTSUGI_CHECK(injection.status().code() == StatusCode::kInvalidArgument, injection.status().ToString());
    KINTSUGI_CHECK(injection.status().message().size() < 4096, "a message as long as the SPEC");
    return false;
  }
  KINTSUGI_CHECK(injection->rank.value() >= 0 && injection->step.value() >= 1, "a place that cannot be");
  KINTSUGI_CHECK(injection->kind != InjectionKind::kExit || (injection->exit_code >= 1 && injection->exit_code <= 255),
                 "an exit code that cannot be");
  const std::string written = ToString(*injection);
  const auto again = ParseInjection(written);
  KINTSUGI_CHECK(again.ok() && *again == *injection, "'" + written + "' says something else");
  KINTSUGI_CHECK(ToString(*again) == written, "'" + written + "' is not canonical");
  return true;
}

std::vector<std::string> Seeds() {
  return {"kill:2@20:update",
          "exit:0@1:forward,code=75",
          "throw:1@90:backward",
          "freeze:3@12",
          "hang:1@7:forward,until=stop",
          "hang:1@7,until=kill",
          "uce:0@9:update,level=high",
          "uce:1@5:backward,tensors=layers.*.weight,level=low"};
}

}  // namespace kintsugi::fuzz
