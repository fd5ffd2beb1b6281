// $LAYER_ID, $EXPERT_ID and $LAYER_ID_OFFSET: one statement becomes one per id, or per combination of ids, that occurs.
#include <algorithm>

#include "replica/aoa/macro.h"

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
    return FirstWithTag(kind_, statement.left) || FirstWithTag(kind_, statement.right);
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
      Fill(left, statement->left, left_ids, &made.left);
      Fill(right, statement->right, right_ids, &made.right);
      out->push_back(std::make_shared<const Statement>(std::move(made)));
    }
    return Status::Ok();
  }

  static void Fill(const Template& from, const std::vector<Name>& side, const std::vector<Id>& ids,
                   std::vector<Name>* out) {
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
