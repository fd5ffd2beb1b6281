#include <bit>
#include <cstring>

#include "callbacks/state/key.h"
#include "replica/formats/pickle/opcodes.h"
#include "replica/formats/pickle/tree.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::pickle {
namespace {

constexpr NodeId kMark = UINT32_MAX - 1;

}  // namespace

class Parser {
 public:
  Parser(std::string_view input, const std::string& place, uint64_t base) : input_(input), place_(place), base_(base) {
    tree_.input_ = input;
    tree_.base_ = base;
  }

  Result<Tree> Run() {
    while (!done_) {
      begin_ = at_;
      uint8_t code = 0;
      if (!Byte(&code)) return Bad("the pickle ends without STOP");
      code_ = static_cast<Opcode>(code);
      if (const Status status = Step(); !status.ok()) return status;
    }
    if (stack_.size() != 1 || stack_[0] == kMark) return Bad("it leaves " + std::to_string(stack_.size()) + " values");
    KINTSUGI_CHECK(
        begin_ < at_ && at_ <= input_.size(),
        "'" + place_ + "': the pickle ends at byte " + std::to_string(at_) + " of " + std::to_string(input_.size()));
    tree_.root = stack_[0];
    tree_.size_bytes = at_;
    return std::move(tree_);
  }

 private:
  Status Bad(const std::string& what) const {
    return {StatusCode::kDataLoss, "'" + place_ + "', byte " + std::to_string(base_ + begin_) + ": pickle opcode " +
                                       std::string(OpcodeName(code_)) + ": " + what};
  }
  Status Short() const { return Bad("it ends within its argument"); }

  bool Byte(uint8_t* value) {
    if (at_ == input_.size()) return false;
    *value = static_cast<uint8_t>(input_[at_++]);
    return true;
  }
  bool Number(int bytes, uint64_t* value) {
    if (input_.size() - at_ < static_cast<size_t>(bytes)) return false;
    *value = 0;
    std::memcpy(value, input_.data() + at_, static_cast<size_t>(bytes));
    at_ += static_cast<size_t>(bytes);
    return true;
  }
  bool View(uint64_t size, std::string_view* view) {
    if (input_.size() - at_ < size) return false;
    *view = input_.substr(at_, size);
    at_ += size;
    return true;
  }
  bool Line(std::string_view* view) {
    const size_t end = input_.find('\n', at_);
    if (end == std::string_view::npos || end - at_ > 1024) return false;
    *view = input_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }

  using Packed = Tree::Packed;

  Status Push(Packed node) {
    if (tree_.size() >= kNodesMax) return Bad("it has more than " + std::to_string(kNodesMax) + " values");
    if (at_ > UINT32_MAX) return Bad("it has more than 4 GiB");
    node.at = static_cast<uint32_t>(begin_);
    stack_.push_back(static_cast<NodeId>(tree_.size()));
    tree_.nodes_.push_back(node);
    return Status::Ok();
  }
  Status PushKind(Kind kind) {
    Packed node;
    node.kind = kind;
    node.range = {0, 0};
    return Push(node);
  }
  Status PushNumber(Kind kind, int64_t number) {
    Packed node;
    node.kind = kind;
    node.number = number;
    return Push(node);
  }
  Status PushInt(int64_t number) { return PushNumber(Kind::kInt, number); }
  // A view of the input, as it is counted there. What is too far is refused by Push.
  Tree::Range RangeOf(std::string_view view) const {
    return {static_cast<uint32_t>(view.data() - input_.data()), static_cast<uint32_t>(view.size())};
  }
  Status PushText(Kind kind, std::string_view text) {
    Packed node;
    node.kind = kind;
    node.range = RangeOf(text);
    return Push(node);
  }
  Status PushView(Kind kind, int length_bytes) {
    uint64_t size = 0;
    std::string_view view;
    if (!Number(length_bytes, &size) || !View(size, &view)) return Short();
    return PushText(kind, view);
  }
  Status PushItems(Kind kind, Items items) {
    Packed node;
    node.kind = kind;
    const auto id = static_cast<NodeId>(tree_.size());
    node.has_more = items.size() > Tree::kBlock;
    node.range = node.has_more ? Tree::Range{0, 0} : tree_.AddIds(items);
    KINTSUGI_RETURN_IF_ERROR(Push(node));
    if (node.has_more) tree_.lists_[id].items.assign(items.begin(), items.end());
    return Status::Ok();
  }
  // A list's first items lie in the pool; with the next ones it becomes one of its own.
  void Grow(NodeId id, Items items) {
    Packed& node = tree_.nodes_[id];
    if (!node.has_more && node.range.size == 0 && items.size() <= Tree::kBlock) {
      node.range = tree_.AddIds(items);
      return;
    }
    std::vector<NodeId>& own = tree_.lists_[id].items;
    if (!node.has_more) {
      const Items first = tree_.ItemsAt(node.range);
      own.assign(first.begin(), first.end());
      node.has_more = true;
    }
    own.insert(own.end(), items.begin(), items.end());
  }
  bool Has(size_t count) const {
    if (stack_.size() < count) return false;
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i)
      if (stack_[i] == kMark) return false;
    return true;
  }
  NodeId Pop() {
    KINTSUGI_CHECK(!stack_.empty() && stack_.back() != kMark,
                   "'" + place_ + "', byte " + std::to_string(base_ + begin_) + ": nothing is there to be taken");
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  // What stands above the topmost mark; the mark goes too.
  bool TakeMarked(std::vector<NodeId>* items) {
    if (marks_.empty()) return false;
    const size_t mark = marks_.back();
    KINTSUGI_CHECK(mark < stack_.size() && stack_[mark] == kMark, "'" + place_ + "': a mark at " +
                                                                      std::to_string(mark) + " of a stack of " +
                                                                      std::to_string(stack_.size()) + " is none");
    marks_.pop_back();
    items->assign(stack_.begin() + static_cast<std::ptrdiff_t>(mark) + 1, stack_.end());
    stack_.resize(mark);
    return true;
  }
  Status PushTuple(size_t count) {
    if (!Has(count)) return Bad("the stack has too few values");
    const std::vector<NodeId> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return PushItems(Kind::kTuple, items);
  }
  Status PushMarked(Kind kind) {
    std::vector<NodeId> items;
    if (!TakeMarked(&items)) return Bad("there is no mark");
    if (kind == Kind::kDict && items.size() % 2 != 0) return Bad("a key has no value");
    return PushItems(kind, items);
  }
  // Appends to a list, a set or an object.
  Status Append(Items items) {
    if (!Has(1)) return Bad("there is nothing to append to");
    const NodeId target = stack_.back();
    const Kind kind = tree_.KindOf(target);
    if (kind != Kind::kList && kind != Kind::kSet && kind != Kind::kCall) return Bad("it appends to what is no list");
    if (kind == Kind::kCall)
      AddTo(&MoreOf(target).appended, items);
    else
      Grow(target, items);
    return Status::Ok();
  }
  Status SetItems(Items items) {
    if (!Has(1)) return Bad("there is nothing to set items of");
    const NodeId target = stack_.back();
    const Kind kind = tree_.KindOf(target);
    if (kind != Kind::kDict && kind != Kind::kCall) return Bad("it sets items of what is no dictionary");
    if (items.size() % 2 != 0) return Bad("a key has no value");
    if (kind == Kind::kCall)
      AddTo(&MoreOf(target).set, items);
    else
      Grow(target, items);
    return Status::Ok();
  }
  Tree::Lists& MoreOf(NodeId call) {
    KINTSUGI_CHECK(tree_.KindOf(call) == Kind::kCall,
                   "'" + place_ + "': node " + std::to_string(call) + " is no call, and gets what is appended to one");
    tree_.nodes_[call].has_more = true;
    return tree_.lists_[call];
  }
  static void AddTo(std::vector<NodeId>* list, Items items) { list->insert(list->end(), items.begin(), items.end()); }
  Status Call(bool is_new) {
    if (!Has(2)) return Bad("the stack has too few values");
    const NodeId arguments = Pop(), callee = Pop();
    if (tree_.KindOf(arguments) != Kind::kTuple) return Bad("its arguments are no tuple");
    const NodeId items[] = {callee, arguments};
    Packed node;
    node.kind = Kind::kCall;
    node.is_new = is_new;
    node.state = kNoNode;
    node.range = tree_.AddIds(items);
    return Push(node);
  }
  Status Memoize(uint64_t slot) {
    if (!Has(1)) return Bad("there is nothing to remember");
    // A memo is written in order by every writer there is; what lies far behind is a trap for memory.
    if (slot > memo_.size() + input_.size())
      return Bad("memo slot " + std::to_string(slot) + " is out of all proportion");
    if (slot >= memo_.size()) memo_.resize(slot + 1, kNoNode);
    memo_[slot] = stack_.back();
    return Status::Ok();
  }
  Status Recall(uint64_t slot) {
    if (slot >= memo_.size() || memo_[slot] == kNoNode) return Bad("memo slot " + std::to_string(slot) + " is empty");
    stack_.push_back(memo_[slot]);
    return Status::Ok();
  }
  Status PushLong(int length_bytes) {
    uint64_t size = 0;
    std::string_view view;
    if (!Number(length_bytes, &size) || !View(size, &view)) return Short();
    if (size > 8) return PushText(Kind::kBigInt, view);
    uint64_t value = size > 0 && (view.back() & 0x80) ? ~uint64_t{0} : 0;
    std::memcpy(&value, view.data(), size);
    return PushInt(static_cast<int64_t>(value));
  }
  Status PushFloat() {
    uint64_t bits = 0;
    if (!Number(8, &bits)) return Short();
    Packed node;
    node.kind = Kind::kFloat;
    node.real = std::bit_cast<double>(__builtin_bswap64(bits));
    return Push(node);
  }
  Status PushGlobal() {
    std::string_view module, name;
    if (!Line(&module) || !Line(&name)) return Short();
    Packed node;
    node.kind = Kind::kGlobal;
    node.range = RangeOf(module);
    node.name = RangeOf(name);
    return Push(node);
  }
  Status PushStackGlobal() {
    if (!Has(2)) return Bad("the stack has too few values");
    const NodeId name = Pop(), module = Pop();
    if (tree_.KindOf(name) != Kind::kText || tree_.KindOf(module) != Kind::kText)
      return Bad("the name of a global is no text");
    Packed node;
    node.kind = Kind::kGlobal;
    node.range = tree_.nodes_[module].range;
    node.name = tree_.nodes_[name].range;
    return Push(node);
  }
  Status Build() {
    if (!Has(2)) return Bad("the stack has too few values");
    const NodeId state = Pop();
    if (tree_.KindOf(stack_.back()) != Kind::kCall) return Bad("it builds what is no object");
    tree_.nodes_[stack_.back()].state = state;
    return Status::Ok();
  }
  Status Step();

  const std::string_view input_;
  const std::string& place_;
  const uint64_t base_;
  size_t at_ = 0, begin_ = 0;
  Opcode code_ = Opcode::kStop;
  bool done_ = false;
  Tree tree_;
  std::vector<NodeId> stack_;
  std::vector<size_t> marks_;
  std::vector<NodeId> memo_;
};

Status Parser::Step() {
  uint64_t number = 0;
  std::vector<NodeId> items;
  switch (code_) {
    case Opcode::kProto:
      if (!Number(1, &number)) return Short();
      return number >= 2 && number <= 5 ? Status::Ok() : Bad("protocol " + std::to_string(number) + " is not read");
    case Opcode::kFrame:
      return Number(8, &number) ? Status::Ok() : Short();
    case Opcode::kStop:
      done_ = true;
      return Status::Ok();
    case Opcode::kMark:
      marks_.push_back(stack_.size());
      stack_.push_back(kMark);
      return Status::Ok();
    case Opcode::kPopMark:
      return TakeMarked(&items) ? Status::Ok() : Bad("there is no mark");
    case Opcode::kPop:
      if (!Has(1)) return Bad("the stack is empty");
      Pop();
      return Status::Ok();
    case Opcode::kNone:
      return PushKind(Kind::kNone);
    case Opcode::kNewTrue:
      return PushNumber(Kind::kBool, 1);
    case Opcode::kNewFalse:
      return PushNumber(Kind::kBool, 0);
    case Opcode::kBinInt:
      return Number(4, &number) ? PushInt(static_cast<int32_t>(number)) : Short();
    case Opcode::kBinInt1:
      return Number(1, &number) ? PushInt(static_cast<int64_t>(number)) : Short();
    case Opcode::kBinInt2:
      return Number(2, &number) ? PushInt(static_cast<int64_t>(number)) : Short();
    case Opcode::kLong1:
      return PushLong(1);
    case Opcode::kLong4:
      return PushLong(4);
    case Opcode::kBinFloat:
      return PushFloat();
    case Opcode::kBinUnicode:
      return PushView(Kind::kText, 4);
    case Opcode::kShortBinUnicode:
      return PushView(Kind::kText, 1);
    case Opcode::kBinUnicode8:
      return PushView(Kind::kText, 8);
    case Opcode::kShortBinString:
      return PushView(Kind::kText, 1);
    case Opcode::kBinBytes:
      return PushView(Kind::kBytes, 4);
    case Opcode::kShortBinBytes:
      return PushView(Kind::kBytes, 1);
    case Opcode::kBinBytes8:
      return PushView(Kind::kBytes, 8);
    case Opcode::kByteArray8:
      return PushView(Kind::kByteArray, 8);
    case Opcode::kEmptyTuple:
      return PushKind(Kind::kTuple);
    case Opcode::kTuple1:
      return PushTuple(1);
    case Opcode::kTuple2:
      return PushTuple(2);
    case Opcode::kTuple3:
      return PushTuple(3);
    case Opcode::kTuple:
      return PushMarked(Kind::kTuple);
    case Opcode::kEmptyList:
      return PushKind(Kind::kList);
    case Opcode::kList:
      return PushMarked(Kind::kList);
    case Opcode::kEmptyDict:
      return PushKind(Kind::kDict);
    case Opcode::kDict:
      return PushMarked(Kind::kDict);
    case Opcode::kEmptySet:
      return PushKind(Kind::kSet);
    case Opcode::kFrozenSet:
      return PushMarked(Kind::kFrozenSet);
    case Opcode::kAppend:
      if (!Has(2)) return Bad("the stack has too few values");
      items = {Pop()};
      return Append(items);
    case Opcode::kAppends:
    case Opcode::kAddItems:
      return TakeMarked(&items) ? Append(items) : Bad("there is no mark");
    case Opcode::kSetItem:
      if (!Has(3)) return Bad("the stack has too few values");
      items = {stack_[stack_.size() - 2], stack_.back()};
      stack_.resize(stack_.size() - 2);
      return SetItems(items);
    case Opcode::kSetItems:
      return TakeMarked(&items) ? SetItems(items) : Bad("there is no mark");
    case Opcode::kBinPut:
      return Number(1, &number) ? Memoize(number) : Short();
    case Opcode::kLongBinPut:
      return Number(4, &number) ? Memoize(number) : Short();
    case Opcode::kMemoize:
      return Memoize(memo_.size());
    case Opcode::kBinGet:
      return Number(1, &number) ? Recall(number) : Short();
    case Opcode::kLongBinGet:
      return Number(4, &number) ? Recall(number) : Short();
    case Opcode::kGlobal:
      return PushGlobal();
    case Opcode::kStackGlobal:
      return PushStackGlobal();
    case Opcode::kReduce:
      return Call(false);
    case Opcode::kNewObj:
      return Call(true);
    case Opcode::kBuild:
      return Build();
    case Opcode::kBinPersId: {
      if (!Has(1)) return Bad("the stack is empty");
      const NodeId item = Pop();
      return PushItems(Kind::kPersistent, {&item, 1});
    }
  }
  return Bad("it is not in the safe subset");
}

Result<Tree> Parse(std::string_view input, const std::string& place, uint64_t base) {
  return Parser(input, place, base).Run();
}

}  // namespace kintsugi::formats::pickle
