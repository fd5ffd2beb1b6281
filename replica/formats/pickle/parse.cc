#include <bit>
#include <cstring>

#include "callbacks/state/key.h"
#include "replica/formats/pickle/opcodes.h"
#include "replica/formats/pickle/tree.h"

namespace kintsugi::formats::pickle {
namespace {

constexpr NodeId kMark = UINT32_MAX - 1;

class Parser {
 public:
  Parser(std::string_view input, const std::string& place, uint64_t base) : input_(input), place_(place), base_(base) {}

  Result<Tree> Run() {
    while (!done_) {
      begin_ = at_;
      uint8_t code = 0;
      if (!Byte(&code)) return Bad("the pickle ends without STOP");
      code_ = static_cast<Opcode>(code);
      if (const Status status = Step(); !status.ok()) return status;
    }
    if (stack_.size() != 1 || stack_[0] == kMark) return Bad("it leaves " + std::to_string(stack_.size()) + " values");
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

  Status Push(Node node) {
    if (tree_.nodes.size() >= kNodesMax) return Bad("it has more than " + std::to_string(kNodesMax) + " values");
    node.at = base_ + begin_;
    stack_.push_back(static_cast<NodeId>(tree_.nodes.size()));
    tree_.nodes.push_back(std::move(node));
    return Status::Ok();
  }
  Status PushKind(Kind kind) { return Push({.kind = kind}); }
  Status PushInt(int64_t number) { return Push({.kind = Kind::kInt, .number = number}); }
  Status PushView(Kind kind, int length_bytes) {
    uint64_t size = 0;
    std::string_view view;
    if (!Number(length_bytes, &size) || !View(size, &view)) return Short();
    return Push({.kind = kind, .text = view});
  }
  bool Has(size_t count) const {
    if (stack_.size() < count) return false;
    for (size_t i = stack_.size() - count; i < stack_.size(); ++i)
      if (stack_[i] == kMark) return false;
    return true;
  }
  NodeId Pop() {
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  // What stands above the topmost mark; the mark goes too.
  bool TakeMarked(std::vector<NodeId>* items) {
    if (marks_.empty()) return false;
    const size_t mark = marks_.back();
    marks_.pop_back();
    items->assign(stack_.begin() + static_cast<std::ptrdiff_t>(mark) + 1, stack_.end());
    stack_.resize(mark);
    return true;
  }
  Status PushTuple(size_t count) {
    if (!Has(count)) return Bad("the stack has too few values");
    Node node{.kind = Kind::kTuple};
    node.items.assign(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return Push(std::move(node));
  }
  Status PushMarked(Kind kind) {
    Node node{.kind = kind};
    if (!TakeMarked(&node.items)) return Bad("there is no mark");
    if (kind == Kind::kDict && node.items.size() % 2 != 0) return Bad("a key has no value");
    return Push(std::move(node));
  }
  // Appends to a list, a set or an object.
  Status Append(const std::vector<NodeId>& items) {
    if (!Has(1)) return Bad("there is nothing to append to");
    Node& target = tree_.nodes[stack_.back()];
    if (target.kind != Kind::kList && target.kind != Kind::kSet && target.kind != Kind::kCall)
      return Bad("it appends to what is no list");
    auto& to = target.kind == Kind::kCall ? target.appended : target.items;
    to.insert(to.end(), items.begin(), items.end());
    return Status::Ok();
  }
  Status SetItems(const std::vector<NodeId>& items) {
    if (!Has(1)) return Bad("there is nothing to set items of");
    Node& target = tree_.nodes[stack_.back()];
    if (target.kind != Kind::kDict && target.kind != Kind::kCall) return Bad("it sets items of what is no dictionary");
    if (items.size() % 2 != 0) return Bad("a key has no value");
    auto& to = target.kind == Kind::kCall ? target.set : target.items;
    to.insert(to.end(), items.begin(), items.end());
    return Status::Ok();
  }
  Status Call(bool is_new) {
    if (!Has(2)) return Bad("the stack has too few values");
    Node node{.kind = Kind::kCall, .is_new = is_new};
    const NodeId arguments = Pop(), callee = Pop();
    if (tree_.nodes[arguments].kind != Kind::kTuple) return Bad("its arguments are no tuple");
    node.items = {callee, arguments};
    return Push(std::move(node));
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
    if (size > 8) return Push({.kind = Kind::kBigInt, .text = view});
    uint64_t value = size > 0 && (view.back() & 0x80) ? ~uint64_t{0} : 0;
    std::memcpy(&value, view.data(), size);
    return PushInt(static_cast<int64_t>(value));
  }
  Status PushFloat() {
    uint64_t bits = 0;
    if (!Number(8, &bits)) return Short();
    return Push({.kind = Kind::kFloat, .real = std::bit_cast<double>(__builtin_bswap64(bits))});
  }
  Status PushGlobal() {
    Node node{.kind = Kind::kGlobal};
    if (!Line(&node.text) || !Line(&node.name)) return Short();
    return Push(std::move(node));
  }
  Status PushStackGlobal() {
    if (!Has(2)) return Bad("the stack has too few values");
    const Node name = tree_.nodes[Pop()], module = tree_.nodes[Pop()];
    if (name.kind != Kind::kText || module.kind != Kind::kText) return Bad("the name of a global is no text");
    return Push({.kind = Kind::kGlobal, .text = module.text, .name = name.text});
  }
  Status Build() {
    if (!Has(2)) return Bad("the stack has too few values");
    const NodeId state = Pop();
    Node& target = tree_.nodes[stack_.back()];
    if (target.kind != Kind::kCall) return Bad("it builds what is no object");
    target.state = state;
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
      return Push({.kind = Kind::kBool, .number = 1});
    case Opcode::kNewFalse:
      return Push({.kind = Kind::kBool, .number = 0});
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
      Node node{.kind = Kind::kPersistent};
      node.items = {Pop()};
      return Push(std::move(node));
    }
  }
  return Bad("it is not in the safe subset");
}

}  // namespace

Result<Tree> Parse(std::string_view input, const std::string& place, uint64_t base) {
  return Parser(input, place, base).Run();
}

}  // namespace kintsugi::formats::pickle
