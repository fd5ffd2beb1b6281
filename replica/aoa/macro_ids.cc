// $LAYER_ID, $EXPERT_ID and $LAYER_ID_OFFSET: one statement becomes one per id, or per combination of ids, that occurs.
#include <algorithm>

#include "replica/aoa/macro.h"
#include "replica/aoa/name_chain.h"
#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

constexpr int kIdsStage = 1;

struct Kind {
  const char* name;
  std::vector<std::string_view> tags;  // in the order in which generated statements are sorted
  bool offset;                         // left the id, right the id - 1
};

using Tuples = std::set<std::vector<Id>>;

bool HasTag(const Kind& kind, const std::string& text) {
  return std::any_of(kind.tags.begin(), kind.tags.end(),
                     [&](std::string_view tag) { return text.find(tag) != std::string::npos; });
}

const Name* FirstWithTag(const Kind& kind, const std::vector<Name>& side) {
  const auto found = std::find_if(side.begin(), side.end(), [&](const Name& name) { return HasTag(kind, name.text); });
  return found == side.end() ? nullptr : &*found;
}

class IdExpander {
 public:
  IdExpander(MacroContext& context, const Kind& kind)
      : context_(context),
        kind_(kind),
        backwards_(context.options().reverse),
        inputs_(backwards_ ? context.destination() : context.source()),
        outputs_(backwards_ ? context.source() : context.destination()) {}

  // In the order in which statements will run, so that a name can be matched against what was assigned before it.
  Status Expand(Statements* statements) {
    if (std::none_of(statements->begin(), statements->end(), [this](const StatementPtr& s) { return Concerns(*s); }))
      return Status::Ok();
    std::vector<Statements> expanded(statements->size());
    for (size_t i = 0; i < statements->size(); ++i) {
      const size_t at = backwards_ ? statements->size() - 1 - i : i;
      KINTSUGI_RETURN_IF_ERROR(ExpandOne((*statements)[at], &expanded[at]));
      for (const StatementPtr& statement : expanded[at]) KINTSUGI_RETURN_IF_ERROR(NoteAssigned(*statement));
    }
    statements->clear();
    for (Statements& group : expanded) std::move(group.begin(), group.end(), std::back_inserter(*statements));
    return Status::Ok();
  }

 private:
  bool Concerns(const Statement& statement) const {
    return (statement.stacked && !kind_.offset) || FirstWithTag(kind_, statement.left) ||
           FirstWithTag(kind_, statement.right);
  }

  const std::vector<Name>& Inputs(const Statement& s) const { return backwards_ ? s.right : s.left; }
  const std::vector<Name>& Outputs(const Statement& s) const { return backwards_ ? s.left : s.right; }

  Status NoteAssigned(const Statement& statement) {
    for (const Name& name : Outputs(statement)) {
      if (!name.array) {
        if (name.text.find('*') == std::string::npos) assigned_.insert(WithoutTranspose(name.text));
        continue;
      }
      const int64_t count = std::max<int64_t>(0, name.array->end - name.array->begin);
      KINTSUGI_RETURN_IF_ERROR(context_.Reserve(statement, name.column, count, 0));
      for (int64_t i = name.array->begin; i < name.array->end; ++i)
        assigned_.insert(name.text + "_" + std::to_string(i));
    }
    return Status::Ok();
  }

  Result<NamePattern> Pattern(const Statement& statement, const Name& name, const std::string& text) {
    if (auto pattern = NamePattern::Parse(text, kind_.tags)) return std::move(*pattern);
    return context_.reporter().Fail(statement, name.column,
                                    "two placeholders of '" + text + "' have nothing but digits between them");
  }

  // What a name is matched as: without ^T, an array by its first element.
  Result<Tuples> Match(const Statement& statement, const Name& name, bool is_input) {
    std::string text = WithoutTranspose(name.text);
    if (name.array) text += "_" + std::to_string(name.array->begin);
    KINTSUGI_ASSIGN_OR_RETURN(const NamePattern pattern, Pattern(statement, name, text));
    Tuples ids;
    pattern.MatchAll((is_input ? inputs_ : outputs_).keys, &ids);
    if (is_input) pattern.MatchAll(assigned_, &ids);
    return ids;
  }

  Status ExpandOne(const StatementPtr& statement, Statements* out) {
    if (statement->stacked && !kind_.offset) return ExpandStacked(statement, out);
    const Name* input = FirstWithTag(kind_, Inputs(*statement));
    const Name* output = FirstWithTag(kind_, Outputs(*statement));
    if (!input && !output) {
      out->push_back(statement);
      return Status::Ok();
    }
    if (kind_.offset) KINTSUGI_RETURN_IF_ERROR(CheckEveryNameHasTag(*statement));

    Tuples ids;
    if (input) {
      KINTSUGI_ASSIGN_OR_RETURN(ids, Match(*statement, *input, true));
      if (!ids.empty()) KINTSUGI_RETURN_IF_ERROR(CheckSameIds(*statement, *input, ids));
    }
    bool by_output = false;
    if (output && (!input || (backwards_ && ids.empty()))) {
      KINTSUGI_ASSIGN_OR_RETURN(ids, Match(*statement, *output, false));
      by_output = true;
    }
    if (ids.empty()) return NothingMatched(*statement, input ? *input : *output, by_output && !input);
    const bool decided_right = by_output != backwards_;
    return Generate(statement, by_output ? *output : *input, ids, decided_right, out);
  }

  // One side has placeholders: the statement for one layer or expert. The name on the other is all of them in one tensor.
  Status ExpandStacked(const StatementPtr& statement, Statements* out) {
    const auto fail = [&](const Name& name, const std::string& message) {
      return context_.reporter().Fail(*statement, name.column, message);
    };
    const bool many_is_left = FirstWithTag(kind_, statement->left);
    const std::vector<Name>&many = many_is_left ? statement->left : statement->right,
          &stack = many_is_left ? statement->right : statement->left;
    const bool is_stack = stack.size() == 1 && !HasTag(kind_, stack[0].text) && !stack[0].array && !IsNothing(stack);
    if (!is_stack || !FirstWithTag(kind_, many) || EndsInTranspose(stack[0].text))
      return fail(stack[0],
                  "stacked takes one plain name on one side, and on the other names with $LAYER_ID or $EXPERT_ID");
    const Name& one = stack[0];
    KINTSUGI_ASSIGN_OR_RETURN(const NamePattern pattern, Pattern(*statement, many[0], many[0].text));
    std::vector<size_t> tags;  // by their places in the name: the order of the axes
    for (size_t i = 0; i < kind_.tags.size(); ++i)
      if (pattern.Has(i)) tags.push_back(i);
    std::sort(tags.begin(), tags.end(),
              [&](size_t a, size_t b) { return many[0].text.find(kind_.tags[a]) < many[0].text.find(kind_.tags[b]); });

    const bool many_is_read = many_is_left != backwards_;
    std::vector<int64_t> lengths(tags.size());
    if (many_is_read) {
      KINTSUGI_ASSIGN_OR_RETURN(const Tuples ids, Match(*statement, many[0], true));
      if (ids.empty()) return NothingMatched(*statement, many[0], false);
      for (const std::vector<Id>& tuple : ids)
        for (size_t k = 0; k < tags.size(); ++k) lengths[k] = std::max(lengths[k], tuple[tags[k]].value + 1);
    } else {
      const Tensor* tensor = inputs_.tensors ? FindTensor(*inputs_.tensors, context_.names(), one.text) : nullptr;
      if (!tensor && context_.options().optional) return Status::Ok();
      if (!tensor)
        return fail(one, "'" + one.text + "' is no key of the " + inputs_.what +
                             ", so how many layers or experts it holds is unknown");
      if (tensor->shape.size() < tags.size())
        return fail(one, "'" + one.text + "' has the shape " + DescribeShape(tensor->shape) +
                             ", which is not an axis for each of the placeholders of '" + many[0].text + "'");
      lengths.assign(tensor->shape.begin(), tensor->shape.begin() + static_cast<std::ptrdiff_t>(tags.size()));
    }
    std::vector<std::vector<Name>> parts;
    for (const Name& name : many) {
      KINTSUGI_ASSIGN_OR_RETURN(const NamePattern own, Pattern(*statement, name, name.text));
      for (size_t i = 0; i < kind_.tags.size(); ++i)
        if (own.Has(i) != pattern.Has(i))
          return fail(name, "'" + name.text + "' has other placeholders than '" + many[0].text + "'");
      KINTSUGI_RETURN_IF_ERROR(FillStack(*statement, name, own, tags, lengths, &parts));
    }
    if (many_is_read) KINTSUGI_RETURN_IF_ERROR(CheckStackIsWhole(*statement, parts));
    return EmitStacked(context_, statement, lengths, one, parts, many_is_left, out);
  }

  // Adds `name` to the names of every part, in row-major order of the axes.
  Status FillStack(const Statement& statement, const Name& name, const NamePattern& pattern,
                   const std::vector<size_t>& tags, const std::vector<int64_t>& lengths,
                   std::vector<std::vector<Name>>* parts) {
    KINTSUGI_CHECK(tags.size() == lengths.size(), "each placeholder is an axis of the stack");
    int64_t count = 1;
    for (const int64_t length : lengths) {
      if (length == 0)
        return context_.reporter().Fail(statement, name.column, "there is nothing to be stacked: an axis is 0 long");
      if (__builtin_mul_overflow(count, length, &count) || count > context_.options().limits.names)
        return context_.Reserve(statement, name.column, context_.options().limits.names + 1, 0);
    }
    KINTSUGI_RETURN_IF_ERROR(
        context_.Reserve(statement, name.column, count, count * (static_cast<int64_t>(name.text.size()) + 16)));
    parts->resize(static_cast<size_t>(count));
    std::vector<Id> tuple(kind_.tags.size());
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i;
      for (size_t k = tags.size(); k-- > 0; rest /= lengths[k])
        tuple[tags[k]] = {rest % lengths[k], std::to_string(rest % lengths[k])};
      (*parts)[static_cast<size_t>(i)].push_back({pattern.Fill(tuple), name.column, name.array});
    }
    return Status::Ok();
  }

  Status CheckStackIsWhole(const Statement& statement, const std::vector<std::vector<Name>>& parts) {
    for (const std::vector<Name>& part : parts)
      for (const Name& name : part) {
        const std::string key =
            WithoutTranspose(name.text) + (name.array ? "_" + std::to_string(name.array->begin) : "");
        if (!inputs_.keys.contains(key) && !assigned_.contains(key))
          return context_.reporter().Fail(statement, name.column,
                                          "stacked needs every layer and expert from 0 on: missing is '" + key + "'");
      }
    return Status::Ok();
  }

  Status NothingMatched(const Statement& statement, const Name& name, bool by_output) {
    if (context_.options().optional) return Status::Ok();
    const Side& side = by_output ? outputs_ : inputs_;
    std::string message = "the pattern '" + name.text + "' matches no key of the " + side.what;
    if (!by_output) message += " and no name assigned before";
    if (!side.tensors) message += std::string(" (the ") + side.what + " is not described)";
    return context_.reporter().Fail(statement, name.column, message);
  }

  Status CheckEveryNameHasTag(const Statement& statement) {
    for (const std::vector<Name>* side : {&statement.left, &statement.right}) {
      if (IsNothing(*side)) continue;
      for (const Name& name : *side)
        if (!HasTag(kind_, name.text))
          return context_.reporter().Fail(
              statement, name.column,
              "every name of a statement with $LAYER_ID_OFFSET must contain it; '" + name.text + "' does not");
    }
    return Status::Ok();
  }

  // Every other name of the deciding side must be there for the same ids; one with fewer placeholders for all of them.
  Status CheckSameIds(const Statement& statement, const Name& first, const Tuples& ids) {
    KINTSUGI_ASSIGN_OR_RETURN(const NamePattern deciding, Pattern(statement, first, first.text));
    for (const Name& name : Inputs(statement)) {
      if (&name == &first || !HasTag(kind_, name.text)) continue;
      KINTSUGI_ASSIGN_OR_RETURN(const NamePattern pattern, Pattern(statement, name, name.text));
      KINTSUGI_ASSIGN_OR_RETURN(const Tuples own, Match(statement, name, true));
      Tuples wanted;
      bool same_placeholders = true;
      for (size_t i = 0; i < kind_.tags.size(); ++i) same_placeholders &= pattern.Has(i) == deciding.Has(i);
      for (std::vector<Id> tuple : ids) {
        for (size_t i = 0; i < tuple.size(); ++i)
          if (!pattern.Has(i)) tuple[i] = {};
        wanted.insert(std::move(tuple));
      }
      const bool fits =
          same_placeholders ? own == wanted : std::includes(own.begin(), own.end(), wanted.begin(), wanted.end());
      if (!fits)
        return context_.reporter().Fail(statement, name.column,
                                        "'" + name.text + "' is there for " + Count(own) + ", '" + first.text +
                                            "' for " + Count(wanted) + ": " + Difference(own, wanted, name));
    }
    return Status::Ok();
  }

  static std::string Count(const Tuples& ids) {
    return std::to_string(ids.size()) + (ids.size() == 1 ? " id" : " ids");
  }

  std::string Difference(const Tuples& own, const Tuples& wanted, const Name& name) const {
    std::vector<std::vector<Id>> difference;
    std::set_symmetric_difference(own.begin(), own.end(), wanted.begin(), wanted.end(), std::back_inserter(difference));
    const auto pattern = NamePattern::Parse(name.text, kind_.tags);
    if (difference.empty() || !pattern) return "";
    const bool missing = wanted.contains(difference[0]);
    return (missing ? "missing is '" : "too many is '") + pattern->Fill(difference[0]) + "'";
  }

  // The names of a side with placeholders filled in, for one tuple.
  struct Template {
    std::vector<NamePattern> patterns;
    int64_t name_bytes = 0;
  };

  Result<Template> MakeTemplate(const Statement& statement, const std::vector<Name>& side, const Name& deciding) {
    Template made;
    KINTSUGI_ASSIGN_OR_RETURN(const NamePattern first, Pattern(statement, deciding, deciding.text));
    for (const Name& name : side) {
      KINTSUGI_ASSIGN_OR_RETURN(NamePattern pattern, Pattern(statement, name, name.text));
      for (size_t i = 0; i < kind_.tags.size(); ++i)
        if (pattern.Has(i) && !first.Has(i))
          return context_.reporter().Fail(statement, name.column,
                                          std::string(kind_.tags[i]) + " of '" + name.text + "' is not in '" +
                                              deciding.text + "', the name that decides");
      made.patterns.push_back(std::move(pattern));
      made.name_bytes += static_cast<int64_t>(name.text.size()) + 16;
    }
    return made;
  }

  Status Generate(const StatementPtr& statement, const Name& deciding, const Tuples& ids, bool decided_right,
                  Statements* out) {
    KINTSUGI_ASSIGN_OR_RETURN(const Template left, MakeTemplate(*statement, statement->left, deciding));
    KINTSUGI_ASSIGN_OR_RETURN(const Template right, MakeTemplate(*statement, statement->right, deciding));
    const auto count = static_cast<int64_t>(ids.size());
    KINTSUGI_RETURN_IF_ERROR(context_.Reserve(
        *statement, deciding.column, count * static_cast<int64_t>(left.patterns.size() + right.patterns.size()),
        count * (left.name_bytes + right.name_bytes)));
    for (const std::vector<Id>& tuple : ids) {
      std::vector<Id> left_ids = tuple, right_ids = tuple;
      if (kind_.offset) {
        const int64_t layer = tuple[0].value + (decided_right ? 1 : 0);
        if (layer == 0)
          return context_.reporter().Fail(*statement, deciding.column,
                                          "layer 0 of '" + deciding.text + "' would become layer -1 on the right");
        if (decided_right)
          left_ids[0].text = std::to_string(layer);
        else
          right_ids[0].text = std::to_string(layer - 1);
      }
      Statement made = Derive(statement, kind_.name, kIdsStage);
      made.attributes = statement->attributes;
      made.fused = statement->fused;
      made.user = statement->user;
      Fill(left, statement->left, left_ids, &made.left);
      Fill(right, statement->right, right_ids, &made.right);
      out->push_back(std::make_shared<const Statement>(std::move(made)));
    }
    return Status::Ok();
  }

  static void Fill(const Template& from, const std::vector<Name>& side, const std::vector<Id>& ids,
                   std::vector<Name>* out) {
    KINTSUGI_CHECK(from.patterns.size() == side.size(), "each name of a side has a pattern");
    for (size_t i = 0; i < side.size(); ++i)
      out->push_back({from.patterns[i].Fill(ids), side[i].column, side[i].array});
  }

  MacroContext& context_;
  const Kind& kind_;
  const bool backwards_;
  const Side& inputs_;              // what is read
  const Side& outputs_;             // what is made
  std::set<std::string> assigned_;  // so far
};

}  // namespace

Status ExpandLayerOffset(MacroContext& context, Statements* statements) {
  static const Kind kind{"$LAYER_ID_OFFSET", {kLayerOffsetTag}, true};
  return IdExpander(context, kind).Expand(statements);
}

Status ExpandIds(MacroContext& context, Statements* statements) {
  static const Kind kind{"$LAYER_ID, $EXPERT_ID", {kExpertTag, kLayerTag}, false};
  return IdExpander(context, kind).Expand(statements);
}

}  // namespace kintsugi::aoa
