// kintsugi reshard plan | validate | distribute: layouts as JSON.
#include "replica/aoa/program_text.h"
#include "replica/layout/validate.h"
#include "tools/cli/answer.h"
#include "tools/cli/common.h"
#include "tools/reshard/distribute_spec.h"
#include "tools/reshard/picture.h"
#include "tools/reshard/reshard_answer.h"
#include "tools/reshard/validate_answer.h"

namespace kintsugi::cli {
namespace {

struct ReshardOptions {
  std::string spec;
  AnswerForm form;
  std::string aoa;
  bool reverse = false;
  bool optional = false;
  std::optional<int32_t> rank;
  std::string strict = "raise_unexpected";
  std::string picture, picture_key;
  bool shards = false;
  std::string policy = "megatron";
};

constexpr const char* kPlanExample = R"(Example: a matrix of 4 x 6 in two column halves becomes two row halves.

    echo '{"tensors": [{"key": "w", "dtype": "float32", "global_shape": [4, 6]}],
           "source": [{"rank": 0, "key": "w", "offset": [0, 0], "shape": [4, 3]},
                      {"rank": 1, "key": "w", "offset": [0, 3], "shape": [4, 3]}],
           "target": [{"rank": 0, "key": "w", "offset": [0, 0], "shape": [2, 6]},
                      {"rank": 1, "key": "w", "offset": [2, 0], "shape": [2, 6]}]}' |
      kintsugi reshard plan --spec - --json

    {"ok":true,"moves":[
     {"key":"w","source_key":"w","from_rank":0,"to_rank":0,
      "source_box":[[0,2],[0,3]],"target_box":[[0,2],[0,3]],"steps":[],"bytes":24},
     ..],"bytes_total":96,"bytes_local":48,"unexpected":[],"unread":[],"checked":true}

A shard may have "flat": [start, stop], its elements in row-major order of its own box, as ZeRO-1 cuts parameters, and
"replica_id", where several ranks hold the same. "hosts": [host of rank 0, ..] makes plans prefer a sender on the
receiver's host. A shard may be given as trainers cut it: "rank_offsets": [[axis, offset, fragments], ..] in place of
"offset".

With --aoa names, shapes and types may differ: "source_tensors" and "target_tensors" stand in place of "tensors", and
the file holds AOA statements, one a line or as a JSON list, bare or as {"aoa_statements": [..]}; "steps" of a move are what is done to its source box, in
order. A source box that one rank needs for several boxes is listed for each of them; "bytes_moved" counts it once.

Every answer is proven before it is shown: each element asked for is written once, by a rank that holds it. A refusal is
{"ok":false,"error":{"code","key","ranks","region","message"}} with exit code 2.)";

constexpr const char* kValidateExample =
    R"(Reads "tensors" and "source" of a spec as `kintsugi reshard plan` takes it, and judges them as all ranks together
would: agreement, bounds, grids, main replicas, copies, and that every element is held by one main replica.

Example: a hole.

    echo '{"tensors": [{"key": "w", "dtype": "float32", "global_shape": [4]}],
           "source": [{"rank": 0, "key": "w", "offset": [0], "shape": [3]}]}' | kintsugi reshard validate --spec - --json

    {"ok":false,"error":{"code":"hole","key":"w","ranks":[0],"region":[[3,4]],
     "message":"tensor 'w': no main replica holds [[3, 4)]; .."}}

and exit code 2.)";

constexpr const char* kDistributeExample =
    R"(Says which of the ranks that hold a shard writes it. "megatron" is the rule of Megatron-core: shards of other process
groups last, few holders first, large ones first, each to its least loaded holder. "balanced" starts there and evens the
load out.

Example: two shards that both ranks hold.

    echo '{"ranks": 2, "shards": [
             {"key": "a", "offset": [0], "flat": null, "bytes": 400, "holders": [0, 1], "cross_group": false},
             {"key": "b", "offset": [0], "flat": null, "bytes": 100, "holders": [0, 1], "cross_group": false}]}' |
      kintsugi reshard distribute --spec - --json

    {"ok":true,"assignment":[0,1],"load":[400,100]})";

Status Draw(const ReshardOptions& options, const reshard::ReshardAnswer& answer) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string drawn, reshard::DrawMoves(answer, options.picture_key));
  return WriteText(options.picture, drawn);
}

Result<reshard::LayoutSpec> ReadSpec(const std::string& file, reshard::SpecSides sides) {
  KINTSUGI_ASSIGN_OR_RETURN(std::string text, ReadInput(file));
  return reshard::ReadLayoutSpec(std::move(text), sides);
}

int RunPlan(const ReshardOptions& options) {
  const auto fail = [&](const std::string& file, const Status& why) { return RefuseSpec(file, why, options.form); };
  if (!options.picture.empty())
    if (const Status writable = CheckWritable(options.picture); !writable.ok()) return fail("--picture", writable);
  Result<reshard::LayoutSpec> spec = ReadSpec(options.spec, reshard::SpecSides::kBoth);
  if (!spec.ok()) return fail(options.spec, spec.status());
  reshard::ReshardQuestion question{std::move(*spec), {},           options.reverse,
                                    options.optional, options.rank, *layout::StrictHandlingFromName(options.strict)};
  if (!options.aoa.empty()) {
    Result<aoa::ProgramText> program = aoa::ReadProgram(options.aoa, ReadInput);
    if (!program.ok()) return fail(options.aoa, program.status());
    question.statements = std::move(program->statements);
    question.reverse = question.reverse || program->reverse;
  }
  const auto answer = reshard::AnswerReshard(std::move(question));
  if (!answer.ok()) return Refuse(answer.error(), options.form);
  const reshard::ReshardAnswer& plan = *answer;
  if (!options.picture.empty())
    if (const Status drawn = Draw(options, plan); !drawn.ok()) return fail("--picture", drawn);
  if (!options.form.IsJson()) return Say(plan.ToTable());
  return SayParts([&](const auto& write) { plan.WriteJson(write); });
}

int RunValidate(const ReshardOptions& options) {
  const Result<reshard::LayoutSpec> spec = ReadSpec(options.spec, reshard::SpecSides::kSource);
  if (!spec.ok()) return RefuseSpec(options.spec, spec.status(), options.form);
  const layout::Metadata& source = spec.value().source;
  const auto errors = Validate(source);
  if (errors.empty())
    return Say(options.form.IsJson() ? reshard::ValidateJson(source, options.shards) : reshard::ValidateTable(source));
  reshard::AnswerRefusal refusal = reshard::LayoutRefusal(errors.front());
  for (size_t i = 1; i < errors.size(); ++i)
    refusal.message += (options.form.IsJson() ? "; also: " : "\nkintsugi: ") + errors[i].message;
  return Refuse(refusal, options.form);
}

int RunDistribute(const ReshardOptions& options) {
  const Result<JsonDocument> document = ReadDocument(options.spec);
  if (!document.ok()) return RefuseSpec(options.spec, document.status(), options.form);
  const Result<reshard::DistributeSpec> spec = reshard::ReadDistributeSpec(document->Root());
  if (!spec.ok()) return RefuseSpec(options.spec, spec.status(), options.form);
  const auto policy =
      options.policy == "balanced" ? plan::DistributionPolicy::kBalanced : plan::DistributionPolicy::kMegatron;
  const auto assignment = Distribute(spec.value().shards, spec.value().ranks, policy);
  if (!assignment.ok()) return Refuse(reshard::LayoutRefusal(assignment.error()), options.form);
  return Say(options.form.IsJson() ? reshard::DistributeJson(*assignment)
                                   : reshard::DistributeTable(spec.value(), *assignment));
}

using Runner = int (*)(const ReshardOptions&);
CLI::App* AddCommand(CLI::App& parent, const char* name, const char* what, const char* example, Runner run,
                     const std::shared_ptr<ReshardOptions>& options, int& exit_code) {
  CLI::App* command = parent.add_subcommand(name, what);
  command->add_option("--spec", options->spec, "Layouts as JSON: FILE, or - for standard input")->required();
  AddAnswerForm(*command, options->form);
  command->footer(example);
  command->callback([options, run, &exit_code] { exit_code = run(*options); });
  return command;
}

}  // namespace

void AddReshard(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("reshard", "Plan, check and share out layouts of sharded tensors, as JSON");
  command->require_subcommand(1);
  auto options = std::make_shared<ReshardOptions>();
  CLI::App* plan = AddCommand(*command, "plan", "Which bytes go from which rank to which", kPlanExample, RunPlan,
                              options, exit_code);
  CLI::Option* aoa = plan->add_option("--aoa", options->aoa, "AOA statements: FILE, one a line or a JSON list, or -; or @NAME of one that ships");
  plan->add_flag("--reverse", options->reverse, "Run the AOA program backwards")->needs(aoa);
  plan->add_flag("--optional", options->optional, "Patterns of the AOA program may match nothing")->needs(aoa);
  plan->add_option(
          "--strict", options->strict,
          "What keys on one side only are: raise_unexpected (asked for, not stored: an error), raise_all (also "
          "stored, not asked for), log_unexpected, log_all, return_unexpected, return_all, ignore_all, "
          "assume_ok_unexpected")
      ->check([](const std::string& name) {
        return layout::StrictHandlingFromName(name) ? std::string() : "'" + name + "' is no strict mode";
      })
      ->capture_default_str();
  plan->add_option("--rank", options->rank, "Only the moves from and to this rank")
      ->check(CLI::Range(0, layout::kRanksMax - 1));
  CLI::Option* picture =
      plan->add_option("--picture", options->picture, "Draw who sends what to whom, as SVG, to FILE");
  plan->add_option("--picture-key", options->picture_key, "The tensor of two axes to draw (default: the first one)")
      ->needs(picture);
  CLI::App* validate = AddCommand(*command, "validate", "Whether one layout is right", kValidateExample, RunValidate,
                                  options, exit_code);
  validate->add_flag("--shards", options->shards, "List every shard with its box too (JSON)");
  CLI::App* distribute = AddCommand(*command, "distribute", "Which holder of a shard writes it", kDistributeExample,
                                    RunDistribute, options, exit_code);
  distribute->add_option("--policy", options->policy, "megatron or balanced")
      ->check(CLI::IsMember({"megatron", "balanced"}))
      ->capture_default_str();
}

}  // namespace kintsugi::cli
