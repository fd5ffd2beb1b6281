// fused_ffn, fused_qkv, fused_qkv_old: weights that hold several projections in one tensor, cut into parts and put
// together in another order. Which parts lie where is told in README, "Fused weights".
#include <map>
#include <numeric>

#include "replica/aoa/attributes.h"
#include "replica/aoa/macro.h"
#include "replica/aoa/name_chain.h"
#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

constexpr int kFusedStage = 6;

constexpr const char* kKeyValueHeads = "num_key_value_heads";
constexpr const char* kGroups = "num_key_value_groups";  // the published word

struct Heads {
  int64_t query = 0;      // num_heads
  int64_t key_value = 0;  // of K, and of V
};

// Expands one fused statement.
class FusedMacro {
 public:
  FusedMacro(MacroContext& context, const NameChain& chain, size_t index, const StatementPtr& statement,
             Statements* out, std::vector<FusedWeight>* fused)
      : context_(context),
        chain_(chain),
        index_(index),
        statement_(*statement),
        parent_(statement),
        out_(out),
        fused_(fused) {}

  Status Expand() {
    const std::string& flag = statement_.fused->text;
    KINTSUGI_RETURN_IF_ERROR(ReadAttributes(flag != "fused_ffn"));
    if (flag == "fused_ffn") return ExpandFfn();
    return flag == "fused_qkv" ? ExpandQkv() : ExpandQkvOld();
  }

 private:
  using Names = std::vector<Name>;

  Status Fail(int column, const std::string& message) { return context_.reporter().Fail(statement_, column, message); }

  Status ReadAttributes(bool with_heads) {
    std::map<std::string, int64_t> numbers;
    for (const Attribute& attribute : statement_.attributes) {
      const bool is_head =
          attribute.name == "num_heads" || attribute.name == kKeyValueHeads || attribute.name == kGroups;
      if (attribute.name != "axis" && !(with_heads && is_head))
        return Fail(attribute.column, "unknown attribute '" + attribute.name + "' of " + statement_.fused->text);
      KINTSUGI_ASSIGN_OR_RETURN(const int64_t number, NumberOf(statement_, attribute, context_.reporter()));
      if (!numbers.emplace(attribute.name, number).second)
        return Fail(attribute.column, "attribute '" + attribute.name + "' is given twice");
    }
    if (numbers.contains("axis")) axis_ = numbers["axis"];
    if (!with_heads) return Status::Ok();
    if (numbers.contains(kKeyValueHeads) && numbers.contains(kGroups))
      return Fail(statement_.fused->column,
                  std::string(kKeyValueHeads) + " and " + kGroups + " say the same; write the first");
    word_ = numbers.contains(kGroups) ? kGroups : kKeyValueHeads;
    for (const char* name : {"num_heads", word_})
      if (!numbers.contains(name) || numbers[name] <= 0)
        return Fail(statement_.fused->column, statement_.fused->text + " needs a positive " + name);
    heads_ = {numbers["num_heads"], numbers[word_]};
    if (heads_.query > context_.options().limits.names)  // each head is a name
      return context_.Reserve(statement_, statement_.fused->column, heads_.query, 0);
    if (heads_.query % heads_.key_value != 0)
      return Fail(statement_.fused->column, "num_heads=" + std::to_string(heads_.query) + " is not divisible by " +
                                                word_ + "=" + std::to_string(heads_.key_value));
    if (word_ == kGroups) SettleGroups();
    return Status::Ok();
  }

  // num_key_value_groups is published as the number of K/V heads, and was once how many Q heads share one. Where the fused
  // weight is described, only one of the two may make it up of whole heads.
  void SettleGroups() {
    const std::optional<int64_t> width = Width();
    const int64_t shared = heads_.query / heads_.key_value;
    const auto fits = [&](int64_t key_value) { return *width % (heads_.query + 2 * key_value) == 0; };
    if (!width || *width == 0 || fits(heads_.key_value) || !fits(shared)) return;
    note_ = std::string(kGroups) + "=" + std::to_string(heads_.key_value) +
            " is read as how many Q heads share one K/V head, as it once was: " + std::to_string(*width) +
            " is no multiple of " + std::to_string(heads_.query + 2 * heads_.key_value) + " heads, but of " +
            std::to_string(heads_.query + 2 * shared) + "; " + kKeyValueHeads + "=" + std::to_string(shared) +
            " cannot be misread";
    heads_.key_value = shared;
    was_read_as_once_ = true;
  }

  // Of the fused weight along the axis, where its name is a key; of both sides the one that has it.
  std::optional<int64_t> Width() const {
    const auto along = [&](const Side& side, const std::vector<Name>& names) -> std::optional<int64_t> {
      const Tensor* tensor =
          side.tensors && names.size() == 1 ? FindTensor(*side.tensors, context_.names(), names[0].text) : nullptr;
      if (!tensor || axis_ < 0 || static_cast<size_t>(axis_) >= tensor->shape.size()) return std::nullopt;
      return tensor->shape[static_cast<size_t>(axis_)];
    };
    const auto read = along(context_.source(), statement_.left);
    return read ? read : along(context_.destination(), statement_.right);
  }

  // `count` parts of one kind ("gate"), before any is named.
  Result<Names> Parts(const std::string& kind, int64_t count, int column) {
    const std::string stem = context_.Temporary(statement_.fused->text) + "." + kind;
    const int64_t uses = 2;  // cut, merged
    if (count > context_.options().limits.names) return context_.Reserve(statement_, column, count, 0);
    KINTSUGI_RETURN_IF_ERROR(
        context_.Reserve(statement_, column, uses * count, uses * count * (static_cast<int64_t>(stem.size()) + 4)));
    Names parts;
    parts.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) parts.push_back({stem + std::to_string(i), column, std::nullopt});
    return parts;
  }

  void Emit(Names left, Names right) {
    KINTSUGI_CHECK(!left.empty() && !right.empty(), "a statement has names on both sides");
    Statement made = Derive(parent_,
                            statement_.fused->text == "fused_ffn"   ? "fused_ffn"
                            : statement_.fused->text == "fused_qkv" ? "fused_qkv"
                                                                    : "fused_qkv_old",
                            kFusedStage);
    made.equal_parts = true;
    made.left = std::move(left);
    made.right = std::move(right);
    made.attributes.push_back({"axis", statement_.fused->column, axis_, statement_.fused->column});
    out_->push_back(std::make_shared<const Statement>(std::move(made)));
  }

  // For each rank of `ranks`, its share of every kind.
  static Names PerRank(const std::vector<const Names*>& kinds, int64_t ranks) {
    KINTSUGI_CHECK(ranks > 0, "parts are shared out among ranks");
    Names order;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (const Names* kind : kinds) {
        KINTSUGI_CHECK(static_cast<int64_t>(kind->size()) % ranks == 0, "each rank has as many parts of a kind");
        const auto share = static_cast<int64_t>(kind->size()) / ranks;
        order.insert(order.end(), kind->begin() + rank * share, kind->begin() + (rank + 1) * share);
      }
    }
    return order;
  }

  // For each group, H/G query heads, the key head, the value head.
  Names PerGroup(const Names& q, const Names& k, const Names& v) const {
    return PerRank({&q, &k, &v}, heads_.key_value);
  }

  Status WrongCount(const std::string& forms) {
    return Fail(statement_.fused->column, statement_.fused->text + " takes " + forms + ", not " +
                                              std::to_string(statement_.left.size()) + " names to " +
                                              std::to_string(statement_.right.size()));
  }

  bool IsForm(size_t left, size_t right) const {
    return statement_.left.size() == left && statement_.right.size() == right;
  }

  Status ExpandFfn() {
    if (!IsForm(1, 1) && !IsForm(1, 2) && !IsForm(2, 1)) return WrongCount("F -> F2, F -> gate, up or gate, up -> F");
    int64_t from = 1, to = 1;
    if (statement_.left.size() == 1) KINTSUGI_RETURN_IF_ERROR(CountSource(&from));
    if (statement_.right.size() == 1) KINTSUGI_RETURN_IF_ERROR(CountDestination(&to));
    Note(from, to);
    if (from > context_.options().limits.names || to > context_.options().limits.names)
      return context_.Reserve(statement_, statement_.fused->column, std::max(from, to), 0);
    const int64_t count = statement_.left.size() == 1 ? std::lcm(from, to) : to;
    KINTSUGI_ASSIGN_OR_RETURN(const Names gate, Parts("gate", count, statement_.left[0].column));
    KINTSUGI_ASSIGN_OR_RETURN(const Names up, Parts("up", count, statement_.left.back().column));
    if (statement_.left.size() == 1) {
      Emit(statement_.left, PerRank({&gate, &up}, from));
    } else {
      Emit({statement_.left[0]}, gate);
      Emit({statement_.left[1]}, up);
    }
    if (statement_.right.size() == 1) {
      Emit(PerRank({&gate, &up}, to), statement_.right);
    } else {
      Emit(gate, {statement_.right[0]});
      Emit(up, {statement_.right[1]});
    }
    return Status::Ok();
  }

  Status CountSource(int64_t* count) {
    KINTSUGI_ASSIGN_OR_RETURN(*count, chain_.SourceShards(index_, statement_.left[0], axis_));
    return Status::Ok();
  }

  Status CountDestination(int64_t* count) {
    KINTSUGI_ASSIGN_OR_RETURN(*count, chain_.DestinationShards(index_, statement_.right[0], axis_));
    return Status::Ok();
  }

  void Note(int64_t from, int64_t to) {
    const bool was_one = statement_.left.size() == 1, is_one = statement_.right.size() == 1;
    fused_->push_back({statement_.fused->text, (is_one ? statement_.right : statement_.left)[0].text,
                       was_one ? from : 0, is_one ? to : 0});
  }

  Status ExpandQkvOld() {
    if (!IsForm(1, 1) && !IsForm(1, 3) && !IsForm(3, 1)) return WrongCount("F -> F2, F -> q, k, v or q, k, v -> F");
    int64_t from = 1, to = 1;
    if (statement_.left.size() == 1) KINTSUGI_RETURN_IF_ERROR(CountSource(&from));
    if (statement_.right.size() == 1) KINTSUGI_RETURN_IF_ERROR(CountDestination(&to));
    Note(from, to);
    for (const auto& [ranks, what] : {std::pair(from, "source"), std::pair(to, "destination")})
      if (heads_.query % ranks != 0 || heads_.key_value % ranks != 0)
        return Fail(statement_.fused->column,
                    "num_heads=" + std::to_string(heads_.query) + " and " + word_ + "=" +
                        std::to_string(heads_.key_value) +
                        ", the numbers of Q heads and of K/V heads, must both be divisible by "
                        "the " +
                        std::to_string(ranks) + " shards of the " + what + Hint(ranks));
    return Reorder(
        [&](const Names& q, const Names& k, const Names& v) {
          return PerRank({&q, &k, &v}, from);
        },
        [&](const Names& q, const Names& k, const Names& v) {
          return PerRank({&q, &k, &v}, to);
        });
  }

  // Some configurations give the number of query heads in a group, where that of the groups is meant.
  std::string Hint(int64_t ranks) const {
    const int64_t heads = heads_.query / heads_.key_value;
    if (word_ != kGroups || was_read_as_once_) return "";
    if (heads_.query % ranks != 0 || heads % ranks != 0 || heads == heads_.key_value) return "";
    return "; if " + std::to_string(heads_.key_value) + " is how many Q heads share one K/V head, write " +
           kKeyValueHeads + "=" + std::to_string(heads);
  }

  Status ExpandQkv() {
    if (IsForm(1, 1)) {
      int64_t from = 1, to = 1;
      // One rank's layout is made where nobody says how the target is cut: of the group layout that is any rank's.
      if (context_.source().tensors && (chain_.KnowsDestination() || was_read_as_once_)) {
        KINTSUGI_RETURN_IF_ERROR(CountSource(&from));
        KINTSUGI_RETURN_IF_ERROR(CountDestination(&to));
      }
      // Who counted as the first published version did means its layout too: each rank's Q, then its K, then its V heads.
      if (from != to && was_read_as_once_) return ExpandQkvOld();
      if (context_.source().tensors) Note(from, to);
      if (from != to) return RefuseTwoMeanings(from, to);
      Emit(statement_.left, statement_.right);  // groups do not depend on shards: the layout stays
      return Status::Ok();
    }
    if (!IsForm(1, 3) && !IsForm(3, 1)) return WrongCount("F -> q, k, v, q, k, v -> F or F -> F2");
    const auto per_group = [&](const Names& q, const Names& k, const Names& v) { return PerGroup(q, k, v); };
    return Reorder(per_group, per_group);
  }

  // The same text was once read as the layout of fused_qkv_old. While nothing is cut anew both mean the same bytes.
  Status RefuseTwoMeanings(int64_t from, int64_t to) {
    const std::string names = statement_.left[0].text + " -> " + statement_.right[0].text;
    const int64_t heads = heads_.query / heads_.key_value;
    const std::string other = word_ != kGroups || heads == heads_.key_value
                                  ? ""
                                  : " (where " + std::to_string(heads_.key_value) +
                                        " counts the query heads of a group, that is " + std::to_string(heads) + ")";
    return Fail(statement_.fused->column,
                "fused_qkv of one name, from " + std::to_string(from) + " shards to " + std::to_string(to) +
                    ", has two meanings: where each rank holds its Q, then its K, then its V heads, write '" + names +
                    ", fused_qkv_old' with num_key_value_heads" + other +
                    "; where the heads lie group by group whatever the ranks, nothing changes: write '" + names + "'");
  }

  // Cuts into heads and merges; `from` and `to` give the order of the heads within a fused tensor.
  template <typename From, typename To>
  Status Reorder(From from, To to) {
    if (!note_.empty()) context_.Note(statement_, note_);
    KINTSUGI_ASSIGN_OR_RETURN(const Names q, Parts("q", heads_.query, statement_.left[0].column));
    const size_t last = statement_.left.size() - 1;
    KINTSUGI_ASSIGN_OR_RETURN(const Names k,
                              Parts("k", heads_.key_value, statement_.left[std::min<size_t>(1, last)].column));
    KINTSUGI_ASSIGN_OR_RETURN(const Names v, Parts("v", heads_.key_value, statement_.left[last].column));
    const Names* const kinds[] = {&q, &k, &v};
    if (statement_.left.size() == 1)
      Emit(statement_.left, from(q, k, v));
    else
      for (size_t i = 0; i < 3; ++i) Emit({statement_.left[i]}, *kinds[i]);
    if (statement_.right.size() == 1)
      Emit(to(q, k, v), statement_.right);
    else
      for (size_t i = 0; i < 3; ++i) Emit(*kinds[i], {statement_.right[i]});
    return Status::Ok();
  }

  MacroContext& context_;
  const NameChain& chain_;
  const size_t index_;
  const Statement& statement_;
  const StatementPtr& parent_;
  Statements* const out_;
  std::vector<FusedWeight>* const fused_;
  int64_t axis_ = 1;
  Heads heads_;
  const char* word_ = kKeyValueHeads;  // by which the statement gives the second
  std::string note_;                   // on how the heads are counted
  bool was_read_as_once_ = false;      // it gives how many Q heads share one K/V head
};

}  // namespace

Status ExpandFused(MacroContext& context, const Tensors* cuts, Statements* statements,
                   std::vector<FusedWeight>* fused) {
  const Tensors* const destination = context.destination().tensors ? context.destination().tensors : cuts;
  const NameChain chain(*statements, context.names(), context.source().tensors, destination, context.reporter());
  KINTSUGI_RETURN_IF_ERROR(chain.Check());
  Statements expanded;
  for (size_t i = 0; i < statements->size(); ++i) {
    const StatementPtr& statement = (*statements)[i];
    if (statement->fused)
      KINTSUGI_RETURN_IF_ERROR(FusedMacro(context, chain, i, statement, &expanded, fused).Expand());
    else
      expanded.push_back(statement);
  }
  *statements = std::move(expanded);
  return Status::Ok();
}

}  // namespace kintsugi::aoa
