#include "replica/reshard/channel.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::reshard {
Channel::Channel(const BoundPlan& plan, const Entries& entries, Link& link, const ExecuteOptions& options,
                 Counters& counters)
    : plan_(plan),
      entries_(entries),
      link_(link),
      options_(options),
      counters_(counters),
      message_bytes_(options.window_bytes / kWindowMessages),
      handover_(kWindowMessages, std::min(message_bytes_, plan.BytesOf(entries)), counters.staging) {
  KINTSUGI_CHECK(!entries.empty(), "a channel carries moves");
}

Hello Channel::MakeHello() const {
  Hello hello;
  hello.fingerprint = plan_.FingerprintOf(entries_);
  hello.message_bytes = message_bytes_;
  hello.moves = static_cast<int64_t>(entries_.size());
  hello.bytes = plan_.BytesOf(entries_);
  return hello;
}

std::string Channel::BeforeFirst() const { return "before " + plan_.Resolve(entries_[0]).Name(); }

// --- sending -------------------------------------------------------------------------------------------------------

const uint8_t* MoveOutbox::RunOf(const PackedMessage& message) const {
  const PackedMessage::Piece* piece = OnlyPiece(message);
  if (piece == nullptr) return nullptr;
  const BoundMove move = plan_.Resolve(piece->entry);
  const uint8_t* run = ContiguousSource(move);
  return run ? run + piece->range.start * move.element_bytes : nullptr;
}

bool MoveOutbox::is_staged() const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const BoundPlan::Entry& entry) {
    const BoundMove move = plan_.Resolve(entry);
    return !move.is_object() && (move.move->bytes < kLargeBytes || ContiguousSource(move) == nullptr);
  });
}

Status MoveOutbox::Pack() {
  MessageCursor cursor = Cursor();
  Filled filled;
  while (cursor.Next(&filled.message)) {
    filled.buffer = nullptr;
    if (!filled.message.is_object && RunOf(filled.message) == nullptr) {
      filled.buffer = handover_.Take();
      if (filled.buffer == nullptr) return Status::Ok();
      KINTSUGI_CHECK(filled.message.size_bytes <= handover_.buffer_bytes(), "a message fits a buffer");
      uint8_t* at = filled.buffer;
      for (const auto& piece : filled.message.pieces) {
        PackElements(plan_.Resolve(piece.entry), piece.range, at);
        at += piece.bytes;
      }
      KINTSUGI_CHECK(at - filled.buffer == filled.message.size_bytes, "its pieces make up a message");
    }
    if (!handover_.Put(std::move(filled))) return Status::Ok();
  }
  handover_.Close();
  return Status::Ok();
}

Status MoveOutbox::Send() {
  const Hello hello = MakeHello();
  KINTSUGI_RETURN_IF_ERROR(SendBytes(link_, &hello, sizeof(hello), options_.deadline).Annotate(BeforeFirst()));
  if (!is_staged()) {
    MessageCursor cursor = Cursor();
    PackedMessage message;
    while (cursor.Next(&message)) KINTSUGI_RETURN_IF_ERROR(SendOne(message, nullptr).Annotate(message.Name(plan_)));
    return Status::Ok();
  }
  Filled filled;
  while (handover_.Get(&filled)) {
    KINTSUGI_RETURN_IF_ERROR(SendOne(filled.message, filled.buffer).Annotate(filled.message.Name(plan_)));
    handover_.GiveBack(filled.buffer);
  }
  return Status::Ok();
}

Status MoveOutbox::SendOne(const PackedMessage& message, const uint8_t* buffer) {
  ++counters_.messages;
  if (message.is_object) return SendObject(plan_.Resolve(message.pieces[0].entry));
  const auto size_bytes = static_cast<uint64_t>(message.size_bytes);
  if (buffer) {
    KINTSUGI_RETURN_IF_ERROR(SendBytes(link_, buffer, size_bytes, options_.deadline));
  } else {
    const Memory& memory = *plan_.Resolve(message.pieces[0].entry).source;
    const auto offset = static_cast<uint64_t>(RunOf(message) - static_cast<const uint8_t*>(memory.data));
    KINTSUGI_RETURN_IF_ERROR(link_.Send(memory, offset, size_bytes, options_.deadline));
    counters_.unstaged += message.size_bytes;
  }
  counters_.sent += message.size_bytes;
  return Status::Ok();
}

Status MoveOutbox::SendObject(const BoundMove& move) {
  const uint64_t size_bytes = move.source->size_bytes;
  KINTSUGI_RETURN_IF_ERROR(SendBytes(link_, &size_bytes, sizeof(size_bytes), options_.deadline));
  KINTSUGI_RETURN_IF_ERROR(link_.Send(*move.source, 0, size_bytes, options_.deadline));
  counters_.object_bytes += static_cast<int64_t>(size_bytes);
  return Status::Ok();
}

// --- receiving -----------------------------------------------------------------------------------------------------

uint8_t* MoveInbox::RunOf(const PackedMessage& message) const {
  const PackedMessage::Piece* piece = OnlyPiece(message);
  if (piece == nullptr) return nullptr;
  const BoundMove move = plan_.Resolve(piece->entry);
  uint8_t* run = ContiguousTarget(move);
  return run ? run + piece->range.start * move.element_bytes : nullptr;
}

bool MoveInbox::is_staged() const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const BoundPlan::Entry& entry) {
    const BoundMove move = plan_.Resolve(entry);
    return !move.is_object() && (move.move->bytes < kLargeBytes || ContiguousTarget(move) == nullptr);
  });
}

Status MoveInbox::CheckHello() {
  Hello found;
  const Hello wanted = MakeHello();
  KINTSUGI_RETURN_IF_ERROR(link_.Receive(&found, sizeof(found), options_.deadline));
  const auto differ = [&](const char* what, auto theirs, auto ours) {
    return Status(StatusCode::kFailedPrecondition, "rank " + link_.peer().ToString() +
                                                       " executes another plan: " + what + " " +
                                                       std::to_string(theirs) + ", here " + std::to_string(ours));
  };
  if (found.magic != wanted.magic) return differ("magic", found.magic, wanted.magic);
  if (found.message_bytes != wanted.message_bytes)
    return differ("message bytes", found.message_bytes, wanted.message_bytes);
  if (found.moves != wanted.moves) return differ("moves", found.moves, wanted.moves);
  if (found.bytes != wanted.bytes) return differ("bytes", found.bytes, wanted.bytes);
  if (found.fingerprint != wanted.fingerprint) return differ("fingerprint", found.fingerprint, wanted.fingerprint);
  return Status::Ok();
}

Status MoveInbox::Receive() {
  KINTSUGI_RETURN_IF_ERROR(CheckHello().Annotate(BeforeFirst()));
  const bool has_unpacker = is_staged();
  MessageCursor cursor = Cursor();
  Filled filled;
  while (cursor.Next(&filled.message)) {
    const bool needs_buffer = !filled.message.is_object && RunOf(filled.message) == nullptr;
    filled.buffer = needs_buffer ? handover_.Take() : nullptr;
    if (needs_buffer && filled.buffer == nullptr) return Status::Ok();
    KINTSUGI_RETURN_IF_ERROR(ReceiveOne(filled.message, filled.buffer).Annotate(filled.message.Name(plan_)));
    if (needs_buffer && !handover_.Put(std::move(filled))) return Status::Ok();
  }
  if (has_unpacker) handover_.Close();
  return Status::Ok();
}

Status MoveInbox::Unpack() {
  Filled filled;
  while (handover_.Get(&filled)) {
    const uint8_t* at = filled.buffer;
    for (const auto& piece : filled.message.pieces) {
      UnpackElements(plan_.Resolve(piece.entry), piece.range, at);
      at += piece.bytes;
    }
    KINTSUGI_CHECK(at - filled.buffer == filled.message.size_bytes, "its pieces make up a message");
    counters_.received += filled.message.size_bytes;
    handover_.GiveBack(filled.buffer);
  }
  return Status::Ok();
}

Status MoveInbox::ReceiveOne(const PackedMessage& message, uint8_t* buffer) {
  ++counters_.messages;
  if (message.is_object) return ReceiveObject(plan_.Resolve(message.pieces[0].entry));
  KINTSUGI_CHECK(buffer == nullptr || message.size_bytes <= handover_.buffer_bytes(), "a message fits a buffer");
  uint8_t* to = buffer ? buffer : RunOf(message);
  KINTSUGI_CHECK(to != nullptr, "a message that needs no buffer has a place of its own");
  KINTSUGI_RETURN_IF_ERROR(link_.Receive(to, static_cast<uint64_t>(message.size_bytes), options_.deadline));
  if (buffer) return Status::Ok();
  counters_.received += message.size_bytes;
  counters_.unstaged += message.size_bytes;
  return Status::Ok();
}

Status MoveInbox::ReceiveObject(const BoundMove& move) {
  uint64_t size_bytes = 0;
  KINTSUGI_RETURN_IF_ERROR(link_.Receive(&size_bytes, sizeof(size_bytes), options_.deadline));
  if (size_bytes > options_.object_bytes_max)
    return {StatusCode::kResourceExhausted, "the object has " + std::to_string(size_bytes) + " bytes, the limit is " +
                                                std::to_string(options_.object_bytes_max)};
  move.target->object->resize(size_bytes);
  KINTSUGI_RETURN_IF_ERROR(link_.Receive(move.target->object->data(), size_bytes, options_.deadline));
  counters_.object_bytes += static_cast<int64_t>(size_bytes);
  return Status::Ok();
}

}  // namespace kintsugi::reshard
