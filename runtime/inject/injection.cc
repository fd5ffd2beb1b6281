#include "runtime/inject/injection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/base/utf8.h"

namespace kintsugi {
namespace {

struct KindEntry {
  InjectionKind kind;
  std::string_view name;
  std::string_view keys;  // for messages
};

constexpr std::array<KindEntry, 10> kKinds{{
    {InjectionKind::kKill, "kill", "the key collective of kill"},
    {InjectionKind::kExit, "exit", "the keys code or collective of exit"},
    {InjectionKind::kThrow, "throw", "the key collective of throw"},
    {InjectionKind::kFreeze, "freeze", "the key collective of freeze"},
    {InjectionKind::kHang, "hang", "the key until of hang"},
    {InjectionKind::kUce, "uce", "the keys level or tensors of uce"},
    {InjectionKind::kSlow, "slow", "the key ms of slow"},
    {InjectionKind::kFlip, "flip", "the key tensors of flip"},
    {InjectionKind::kFlipGrad, "flip-grad", "the key collective of flip-grad"},
    {InjectionKind::kDevice, "device", "the key xid or tensors of device, one of them"},
}};

constexpr std::string_view kGrammar =
    "  grammar: KIND:RANK@STEP[:PHASE][,key=value]...\n"
    "  KIND     kill, exit, throw, freeze, hang, slow, uce, flip, flip-grad or device\n"
    "  RANK     from 0; STEP: the step being computed, from 1\n"
    "  PHASE    forward (default), backward, gradient-sync, gate, update, param-sync or between\n"
    "  keys     kill, exit, throw, freeze: collective=N, from 1: no phase, but where the step is about to\n"
    "           begin its N-th collective (of trainers that tell of theirs, as kintsugi.torch does);\n"
    "           flip-grad: collective=N (default 1), a bit of what it is given; no phase;\n"
    "           exit: code=1..255 (default 1); hang: until=kill|stop (default kill);\n"
    "           slow: ms=1..3600000 (default 100);\n"
    "           uce: level=low|high (default low); uce, flip: tensors=PATTERN (* and ?);\n"
    "           device: xid=1..9999 (default 94), or tensors=PATTERN: damaged memory of these\n"
    "  example: kill:2@7:update   or   uce:1@12:backward,level=high,tensors=adam.*";

// What may stand in a message without harming a terminal; long findings are cut.
std::string Printable(std::string_view text) {
  constexpr size_t kLimit = 40;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (size_t i = 0; i < text.size() && i < kLimit; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') {
      out += text[i];
    } else {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out + (text.size() > kLimit ? "...\"" : "\"");
}

// A cursor over the SPEC that remembers the first thing that was wrong and where.
class Parser {
 public:
  explicit Parser(std::string_view spec) : spec_(spec) {}

  Result<Injection> Run() {
    // What is shown, kept and told of a fault is text: another name would stand in its place.
    if (ParseHead() && ParseKeys() && (ToUtf8(spec_) == spec_ || FailAt(0, spec_, "UTF-8"))) return injection_;
    return Status(StatusCode::kInvalidArgument, error_);
  }

 private:
  // The text from the cursor up to the first of `stops` or the end; the cursor moves behind it.
  std::string_view Take(std::string_view stops) {
    token_at_ = at_;
    at_ = std::min(spec_.find_first_of(stops, at_), spec_.size());
    return spec_.substr(token_at_, at_ - token_at_);
  }

  bool FailAt(size_t column, std::string_view found, std::string_view expected) {
    error_ = "bad fault " + Printable(spec_) + ", column " + std::to_string(column + 1) + ": found " +
             (found.empty() ? (column >= spec_.size() ? std::string("the end") : std::string("nothing"))
                            : Printable(found)) +
             ", expected " + std::string(expected) + "\n" + std::string(kGrammar);
    return false;
  }

  bool Expect(char sign, std::string_view expected) {
    if (at_ < spec_.size() && spec_[at_] == sign) {
      ++at_;
      return true;
    }
    return FailAt(at_, spec_.substr(at_, at_ < spec_.size() ? 1 : 0), expected);
  }

  bool TakeNumber(std::string_view stops, uint64_t low, uint64_t high, std::string_view what, uint64_t& value) {
    const std::string_view token = Take(stops);
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error == std::errc() && end == token.data() + token.size() && !token.empty() && value >= low && value <= high) {
      return true;
    }
    return FailAt(token_at_, token, std::string(what) + " from " + std::to_string(low) + " to " + std::to_string(high));
  }

  bool ParseHead() {
    if (spec_.size() > kMaxInjectionSpecBytes) {
      return FailAt(kMaxInjectionSpecBytes, spec_.substr(kMaxInjectionSpecBytes),
                    "an end: a fault has at most " + std::to_string(kMaxInjectionSpecBytes) + " characters");
    }
    const std::string_view name = Take(":");
    for (const KindEntry& entry : kKinds) {
      if (entry.name == name) kind_ = &entry;
    }
    if (kind_ == nullptr)
      return FailAt(token_at_, name, "a kind: kill, exit, throw, freeze, hang, slow, uce, flip, flip-grad or device");
    injection_.kind = kind_->kind;
    if (injection_.kind == InjectionKind::kFlipGrad) injection_.collective = 1;
    uint64_t rank = 0;
    uint64_t step = 0;
    if (!Expect(':', "a colon and the rank") ||
        !TakeNumber("@:,", 0, std::numeric_limits<int32_t>::max(), "a rank", rank) || !Expect('@', "@ and the step") ||
        !TakeNumber(":,", 1, kMaxProgressStep, "a step", step)) {
      return false;
    }
    injection_.rank = Rank(static_cast<int32_t>(rank));
    injection_.step = Step(step);
    return ParsePhase();
  }

  bool ParsePhase() {
    if (at_ == spec_.size() || spec_[at_] != ':') return true;
    ++at_;
    const std::string_view name = Take(",");
    const std::optional<TrainPhase> phase = TrainPhaseFromName(name);
    if (!phase) {
      return FailAt(token_at_, name, "a phase: forward, backward, gradient-sync, gate, update, param-sync or between");
    }
    injection_.phase = *phase;
    if (injection_.kind == InjectionKind::kFlipGrad && *phase != TrainPhase::kForward)
      return FailAt(token_at_, name, "no phase: the N-th collective is that of the whole step");
    return true;
  }

  bool ParseKeys() {
    std::vector<std::string_view> seen;
    while (at_ < spec_.size()) {
      if (!Expect(',', "a comma and a key")) return false;
      const std::string_view key = Take("=,");
      const size_t key_at = token_at_;
      for (std::string_view earlier : seen) {
        if (earlier == key) return FailAt(key_at, key, "each key once");
      }
      seen.push_back(key);
      const bool is_second = kind_->kind == InjectionKind::kDevice && seen.size() > 1;
      if (!KeyBelongs(key) || is_second) return FailAt(key_at, key, kind_->keys);
      if (key == "collective" && injection_.phase != TrainPhase::kForward)
        return FailAt(key_at, key, "no phase beside it: the N-th collective is that of the whole step");
      if (!Expect('=', "= and a value") || !ParseValue(key)) return false;
    }
    return true;
  }

  bool KeyBelongs(std::string_view key) const {
    if (injection_.kind == InjectionKind::kExit) return key == "code" || key == "collective";
    if (injection_.kind == InjectionKind::kKill || injection_.kind == InjectionKind::kThrow ||
        injection_.kind == InjectionKind::kFreeze || injection_.kind == InjectionKind::kFlipGrad)
      return key == "collective";
    if (injection_.kind == InjectionKind::kHang) return key == "until";
    if (injection_.kind == InjectionKind::kSlow) return key == "ms";
    if (injection_.kind == InjectionKind::kFlip) return key == "tensors";
    if (injection_.kind == InjectionKind::kDevice) return key == "tensors" || key == "xid";
    return injection_.kind == InjectionKind::kUce && (key == "level" || key == "tensors");
  }

  bool ParseValue(std::string_view key) {
    if (key == "code") {
      uint64_t code = 0;
      if (!TakeNumber(",", 1, 255, "an exit code", code)) return false;
      injection_.exit_code = static_cast<int>(code);
      return true;
    }
    if (key == "collective") {
      uint64_t number = 0;
      if (!TakeNumber(",", 1, 1'000'000, "the number of a collective", number)) return false;
      injection_.collective = static_cast<int>(number);
      return true;
    }
    if (key == "ms") {
      uint64_t ms = 0;
      if (!TakeNumber(",", 1, 3'600'000, "milliseconds", ms)) return false;
      injection_.slow_ms = static_cast<int>(ms);
      return true;
    }
    if (key == "xid") {
      uint64_t xid = 0;
      if (!TakeNumber(",", 1, 9999, "an Xid", xid)) return false;
      injection_.xid = static_cast<int>(xid);
      return true;
    }
    const std::string_view value = Take(",");
    if (key == "until") {
      if (value != "kill" && value != "stop") return FailAt(token_at_, value, "kill or stop");
      injection_.until = value == "stop" ? HangUntil::kStop : HangUntil::kKill;
      return true;
    }
    if (key == "tensors") {
      if (value.empty()) return FailAt(token_at_, value, "a pattern of tensor names, such as adam.*");
      injection_.tensors = value;
      return true;
    }
    if (value != "low" && value != "high") return FailAt(token_at_, value, "low or high");
    injection_.level = value == "high" ? UceLevel::kHigh : UceLevel::kLow;
    return true;
  }

  std::string_view spec_;
  size_t at_ = 0;
  size_t token_at_ = 0;
  const KindEntry* kind_ = nullptr;
  Injection injection_;
  std::string error_;
};

}  // namespace

std::string_view InjectionKindName(InjectionKind kind) {
  for (const KindEntry& entry : kKinds) {
    if (entry.kind == kind) return entry.name;
  }
  return "unknown";
}

Result<Injection> ParseInjection(std::string_view spec) { return Parser(spec).Run(); }

std::string ToString(const Injection& injection) {
  const Injection defaults;
  std::string out(InjectionKindName(injection.kind));
  out += ":" + injection.rank.ToString() + "@" + injection.step.ToString() + ":";
  out += TrainPhaseName(injection.phase);
  if (injection.collective != defaults.collective) out += ",collective=" + std::to_string(injection.collective);
  if (injection.exit_code != defaults.exit_code) out += ",code=" + std::to_string(injection.exit_code);
  if (injection.slow_ms != defaults.slow_ms) out += ",ms=" + std::to_string(injection.slow_ms);
  if (injection.xid != defaults.xid) out += ",xid=" + std::to_string(injection.xid);
  if (injection.until == HangUntil::kStop) out += ",until=stop";
  if (injection.level == UceLevel::kHigh) out += ",level=high";
  if (!injection.tensors.empty()) out += ",tensors=" + injection.tensors;
  return out;
}

std::string_view InjectionGrammar() { return kGrammar; }

}  // namespace kintsugi
