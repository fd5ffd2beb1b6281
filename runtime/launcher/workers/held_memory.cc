#include "runtime/launcher/workers/held_memory.h"

#include <csignal>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

// Ended by an error of its own, it may have written anywhere before.
bool IsClean(const ExitCause& cause) {
  switch (cause.kind) {
    case ExitKind::kExitCode:
    case ExitKind::kOutOfMemory:
      return true;
    case ExitKind::kSignal:
      return cause.ordered || (cause.signal != SIGSEGV && cause.signal != SIGBUS && cause.signal != SIGILL &&
                               cause.signal != SIGFPE && cause.signal != SIGABRT && cause.signal != SIGSYS);
    case ExitKind::kSpawnFailed:
    case ExitKind::kUnknown:
      return false;
  }
  return false;
}

core::StateMark MarkOf(const SharedWords& words) {
  const uint64_t mark = words.state_mark.load();
  // Anything else is no word of ours: of no use.
  return mark <= static_cast<uint64_t>(core::StateMark::kWhole) ? static_cast<core::StateMark>(mark)
                                                                : core::StateMark::kWriting;
}

}  // namespace

void HeldMemory::Attach(StateChannel channel) {
  channel_.emplace(std::move(channel));
  own_.reset();
  given_ = false;
}

void HeldMemory::Poll(const SharedWords& words) {
  Read();
  if (held_ && !core::LeavesHeldWhole(MarkOf(words), given_)) Forget();
}

void HeldMemory::Forget() {
  held_.reset();
  left_.reset();
}

void HeldMemory::DistrustDevice() {
  Read();
  if (own_ && own_->on_device) own_.reset();
  if (left_ && left_->on_device) Forget();
}

void HeldMemory::Read() {
  while (channel_) {
    Result<StateMessage> message = channel_->Receive();
    if (message.ok()) {
      On(std::move(message).value());
      continue;
    }
    if (message.status().code() == StatusCode::kNotFound) return;
    if (message.status().code() != StatusCode::kEnded) own_.reset();  // nonsense: what came before is not to be trusted
    channel_.reset();
  }
}

void HeldMemory::On(StateMessage message) {
  switch (message.word) {
    case StateWord::kTensors: {
      own_.reset();
      if (message.files.empty()) break;  // taken back
      Files own;
      own.shape = message.shape;
      for (UniqueFd& file : message.files) own.tensors.push_back(std::make_shared<UniqueFd>(std::move(file)));
      own_ = std::move(own);
      break;
    }
    case StateWord::kObjects:
      if (own_ && message.files.size() == 1)
        own_->objects = std::make_shared<UniqueFd>(std::move(message.files.front()));
      break;
    case StateWord::kOnDevice:
      if (own_) own_->on_device = true;
      break;
    case StateWord::kAsk:
      Give();
      break;
    case StateWord::kAdopted:
      if (left_) own_ = left_;
      break;
    case StateWord::kNothing:
    case StateWord::kEnd:
      break;
  }
}

void HeldMemory::Give() {
  if (!left_) return void(channel_->Send(StateWord::kNothing));
  KINTSUGI_CHECK(channel_.has_value(), "state is given to nobody");
  given_ = true;
  std::vector<int> files;
  for (const auto& file : left_->tensors) files.push_back(file->get());
  // A process that does not take them has failed by then; its agent says so.
  if (!channel_->Send(StateWord::kTensors, left_->shape, files).ok()) return;
  if (left_->objects && !channel_->Send(StateWord::kObjects, 0, {left_->objects->get()}).ok()) return;
  (void)channel_->Send(StateWord::kEnd);
}

std::optional<core::HeldState> HeldMemory::OnExit(Incarnation incarnation, const SharedWords& words,
                                                  const ExitCause& cause) {
  Read();  // a process's last words outlive it
  channel_.reset();
  held_ = core::HeldAfter(held_, {.of = incarnation,
                                  .mark = MarkOf(words),
                                  .word = core::GateWord::Unpack(words.gate_word.load()),
                                  .offered = own_.has_value(),
                                  .clean = IsClean(cause),
                                  .given = given_,
                                  .device_behind = words.device_behind.load() != 0});
  if (held_ && held_->of == incarnation) left_ = std::move(own_);
  if (!held_) left_.reset();
  own_.reset();
  return held_;
}

}  // namespace kintsugi
