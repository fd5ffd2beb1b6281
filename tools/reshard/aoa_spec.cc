#include "tools/reshard/aoa_spec.h"

#include "tools/reshard/json_text.h"
#include "tools/reshard/table.h"

namespace kintsugi::reshard {
namespace {

// AOA has no limit on axes of its own.
constexpr size_t kAxesRead = 64;
constexpr size_t kStatementsShown = 40;

Result<DType> ReadDType(const JsonField& field) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::string_view name, field.Text());
  const auto dtype = DTypeFromName(name);
  if (!dtype) return field.Fail("is '" + std::string(name.substr(0, 40)) + "', which is no dtype; try float32 or bfloat16");
  return *dtype;
}

Result<aoa::Tensor> ReadTensor(const JsonField& field) {
  KINTSUGI_RETURN_IF_ERROR(field.CheckMembers({"shape", "dtype", "shards"}));
  aoa::Tensor tensor;
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField shape, field.Get("shape"));
  KINTSUGI_ASSIGN_OR_RETURN(tensor.shape, shape.Integers(kAxesRead));
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField dtype, field.Get("dtype"));
  KINTSUGI_ASSIGN_OR_RETURN(tensor.dtype, ReadDType(dtype));
  const auto shards = field.Find("shards");
  if (!shards) return tensor;
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> list, shards->List());
  for (const JsonField& entry : list) {
    KINTSUGI_RETURN_IF_ERROR(entry.CheckMembers({"offset", "shape"}));
    aoa::Shard shard;
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField offset, entry.Get("offset"));
    KINTSUGI_ASSIGN_OR_RETURN(shard.offset, offset.Integers(kAxesRead));
    KINTSUGI_ASSIGN_OR_RETURN(const JsonField length, entry.Get("shape"));
    KINTSUGI_ASSIGN_OR_RETURN(shard.shape, length.Integers(kAxesRead));
    tensor.shards.push_back(std::move(shard));
  }
  return tensor;
}

Result<aoa::Tensors> ReadTensors(const JsonField& field) {
  aoa::Tensors tensors;
  KINTSUGI_ASSIGN_OR_RETURN(const auto members, field.Members());
  for (const auto& [key, value] : members) {
    KINTSUGI_ASSIGN_OR_RETURN(aoa::Tensor tensor, ReadTensor(value));
    tensors.emplace(key, std::move(tensor));
  }
  return tensors;
}

Result<aoa::Target> ReadQuery(const JsonField& field) {
  KINTSUGI_RETURN_IF_ERROR(field.CheckMembers({"key", "box", "dtype"}));
  aoa::Target query;
  KINTSUGI_RETURN_IF_ERROR(field.Read("key", &query.key));
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField box, field.Get("box"));
  KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> axes, box.List());
  if (axes.size() > kAxesRead) return box.Fail("has " + std::to_string(axes.size()) + " axes");
  for (const JsonField& axis : axes) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, axis.Integers(2));
    if (ends.size() != 2 || ends[0] < 0 || ends[1] < ends[0]) return axis.Fail("must be [lo, hi] with 0 <= lo <= hi");
    query.box.push_back({ends[0], ends[1]});
  }
  if (const auto dtype = field.Find("dtype")) {
    KINTSUGI_ASSIGN_OR_RETURN(query.dtype, ReadDType(*dtype));
  }
  return query;
}

void AppendBox(const aoa::IndexBox& box, std::string* out) {
  *out += '[';
  for (size_t axis = 0; axis < box.size(); ++axis)
    *out += (axis ? ",[" : "[") + std::to_string(box[axis].begin) + "," + std::to_string(box[axis].end) + "]";
  *out += ']';
}

std::vector<std::string> Texts(const std::vector<aoa::PieceStep>& steps) {
  std::vector<std::string> texts;
  for (const aoa::PieceStep& step : steps) texts.push_back(step.ToString());
  return texts;
}

}  // namespace

Result<AoaSpec> ReadAoaSpec(const JsonField& root) {
  KINTSUGI_RETURN_IF_ERROR(
      root.CheckMembers({"statements", "reverse", "optional", "source", "destination", "queries"}));
  AoaSpec spec;
  KINTSUGI_RETURN_IF_ERROR(root.Read("statements", &spec.program.statements));
  KINTSUGI_RETURN_IF_ERROR(root.ReadIfAny("reverse", &spec.program.options.reverse));
  KINTSUGI_RETURN_IF_ERROR(root.ReadIfAny("optional", &spec.program.options.optional));
  KINTSUGI_ASSIGN_OR_RETURN(const JsonField source, root.Get("source"));
  KINTSUGI_ASSIGN_OR_RETURN(spec.program.source, ReadTensors(source));
  if (const auto destination = root.Find("destination")) {
    KINTSUGI_ASSIGN_OR_RETURN(spec.program.destination, ReadTensors(*destination));
  }
  if (const auto queries = root.Find("queries")) {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<JsonField> list, queries->List());
    for (const JsonField& field : list) {
      KINTSUGI_ASSIGN_OR_RETURN(aoa::Target query, ReadQuery(field));
      spec.queries.push_back(std::move(query));
    }
  }
  return spec;
}

Result<AoaAnswer, AnswerRefusal> AnswerAoa(AoaSpec spec) {
  const auto engine = aoa::Engine::Build(std::move(spec.program));
  if (!engine.ok()) return ProgramRefusal(engine.error());
  AoaAnswer answer{engine->outputs(), engine->dropped_states(), engine->unread(), engine->expanded(), {}};
  for (const aoa::Target& query : spec.queries) {
    auto pieces = engine->FindShardSources(query);
    if (!pieces.ok()) return ProgramRefusal(pieces.error());
    answer.queries.emplace_back(query.key, std::move(*pieces));
  }
  return answer;
}

std::string AoaAnswer::ToJson() const {
  std::string text = "{\"ok\":true,\"outputs\":{";
  std::vector<std::string> added;
  for (const auto& [key, output] : outputs) {
    if (text.back() != '{') text += ",";
    text += Quoted(key) + ":{\"shape\":";
    AppendNumbers<int64_t>(output.shape, &text);
    text += ",\"dtype\":" + Quoted(DTypeName(output.dtype)) + "}";
    if (output.is_added) added.push_back(key);
  }
  text += "},\"queries\":[";
  for (const auto& [key, pieces] : queries) {
    if (text.back() != '[') text += ",";
    text += "{\"key\":" + Quoted(key) + ",\"pieces\":[";
    for (const aoa::ShardSource& piece : pieces) {
      text += text.back() == '[' ? "{\"target_box\":" : ",{\"target_box\":";
      AppendBox(piece.target_box, &text);
      text += ",\"source_key\":" + Quoted(piece.source_key) + ",\"source_box\":";
      AppendBox(piece.source_box, &text);
      text += ",\"steps\":";
      AppendTexts(Texts(piece.steps), &text);
      text += "}";
    }
    text += "]}";
  }
  text += "],\"added\":";
  AppendTexts(added, &text);
  text += ",\"dropped\":";
  AppendTexts(dropped, &text);
  text += ",\"unread\":";
  AppendTexts(unread, &text);
  return text + "}";
}

std::string AoaAnswer::ToTable() const {
  std::string text = "Without macros:\n";
  for (size_t i = 0; i < std::min(kStatementsShown, expanded.size()); ++i) text += "  " + expanded[i] + "\n";
  if (expanded.size() > kStatementsShown)
    text += "  and " + std::to_string(expanded.size() - kStatementsShown) + " more\n";
  Table made({"output", "dtype", "shape"});
  for (const auto& [key, output] : outputs)
    made.Add({key, std::string(DTypeName(output.dtype)),
              DescribeShape(output.shape) + (output.is_added ? ", no source" : "")});
  text += "\n" + made.ToText();
  for (const std::string& key : dropped) text += "  " + key + ": a state that nothing speaks of\n";
  for (const std::string& key : unread) text += "  " + key + ": stored, but nothing is made of it\n";
  if (queries.empty()) return text;
  Table pieces({"asked for", "box", "made of", "its box", "steps"});
  for (const auto& [key, list] : queries) {
    if (list.empty()) pieces.Add({key, "", "nothing", "", ""});
    for (const aoa::ShardSource& piece : list) {
      std::string steps;
      for (const aoa::PieceStep& step : piece.steps) steps += (steps.empty() ? "" : ", ") + step.ToString();
      pieces.Add({key, DescribeBox(piece.target_box), piece.source_key, DescribeBox(piece.source_box), steps});
    }
  }
  return text + "\n" + pieces.ToText();
}

}  // namespace kintsugi::reshard
