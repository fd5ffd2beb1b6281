// kintsugi aoa explain: what an AOA program makes, and of what.
#include "tools/cli/answer.h"
#include "tools/cli/common.h"
#include "tools/reshard/aoa_spec.h"

namespace kintsugi::cli {
namespace {

struct AoaOptions {
  std::string spec;
  AnswerForm form;
};

constexpr const char* kExample =
    R"(AOA statements say how stored tensors become the tensors of a running model: rename, merge, split, permute, cast, and
macros for layers, experts and fused weights. No tensor is touched here: the answer says of which boxes of which stored
tensors a box is made, and what is done to them on the way. replica/aoa/README.md is the language.

Example: two stored halves become one tensor, transposed, in float64.

    echo '{"statements": ["s0, s1 -> s, axis=1", "s -> s, dtype=\"float64\"", "s^T -> d"],
           "source": {"s0": {"shape": [2, 2], "dtype": "float32"}, "s1": {"shape": [2, 2], "dtype": "float32"}},
           "destination": {"d": {"shape": [4, 2], "dtype": "float64"}},
           "queries": [{"key": "d", "box": [[2, 4], [0, 1]]}]}' | kintsugi aoa explain --spec - --json

    {"ok":true,"outputs":{"d":{"shape":[4,2],"dtype":"float64"}},"queries":[{"key":"d","pieces":[
     {"target_box":[[2,4],[0,1]],"source_key":"s1","source_box":[[0,1],[0,2]],"steps":["float64","[1, 0]"]}]}],
     "added":[],"dropped":[],"unread":[]}

Fields: "destination" may be null: then every name that nothing reads is an output. With "reverse": true the program
runs backwards, and "source" is what it makes forwards. "shards": [{"offset", "shape"}] of a tensor matter to fused
macros only. A mistake is {"ok":false,"error":{"statement","column","message","chain",..}} with exit code 2.)";

// No statement is at fault, but the form of the error is the same.
int RefuseInput(const AoaOptions& options, const Status& status) {
  reshard::AnswerRefusal refusal = reshard::SpecRefusal(PlaceOf(options.spec), status);
  refusal.diagnostic.emplace();
  return Refuse(refusal, options.form);
}

int RunExplain(const AoaOptions& options) {
  const Result<JsonDocument> document = ReadDocument(options.spec);
  if (!document.ok()) return RefuseInput(options, document.status());
  Result<reshard::AoaSpec> spec = reshard::ReadAoaSpec(document->Root());
  if (!spec.ok()) return RefuseInput(options, spec.status());
  const auto answer = reshard::AnswerAoa(std::move(*spec));
  if (!answer.ok()) return Refuse(answer.error(), options.form);
  return Say(options.form.IsJson() ? answer->ToJson() : answer->ToTable());
}

}  // namespace

void AddAoa(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("aoa", "Explain AOA programs: how stored tensors become running ones");
  command->require_subcommand(1);
  auto options = std::make_shared<AoaOptions>();
  CLI::App* explain = command->add_subcommand("explain", "What a program makes, and of which boxes of what");
  explain->add_option("--spec", options->spec, "Program and tensors as JSON: FILE, or - for standard input")
      ->required();
  AddAnswerForm(*explain, options->form);
  explain->footer(kExample);
  explain->callback([options, &exit_code] { exit_code = RunExplain(*options); });
}

}  // namespace kintsugi::cli
