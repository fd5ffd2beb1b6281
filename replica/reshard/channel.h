// The two ends of one direction of a link: MoveOutbox sends what one rank has for another, MoveInbox takes it (private
// to this folder).
//
// What: each has two stages: packing and sending, receiving and unpacking. They run on a thread each, with a Handover
// between them; where nothing needs a buffer the link's stage runs alone.
// Threads: each stage on one thread; Stop from any.
// Errors: the link's, with the message's moves; a stage that was stopped returns ok: the stage that stopped it has said
// why.
#pragma once

#include "replica/reshard/execute.h"
#include "replica/reshard/handover.h"

namespace kintsugi::reshard {

inline constexpr int64_t kWindowMessages = 4;

// What all channels of an execution count.
struct Counters {
  std::atomic<int64_t> sent{0}, received{0}, unstaged{0}, object_bytes{0}, messages{0};
  StagingMeter staging;
};

// The first message of a direction: what its two ends must agree on.
struct Hello {
  uint64_t magic = 0x6b696e7473756769;  // "kintsugi"
  uint64_t fingerprint = 0;
  int64_t message_bytes = 0;
  int64_t moves = 0;
  int64_t bytes = 0;
};

class Channel {
 public:
  using Entries = std::vector<BoundPlan::Entry>;
  Channel(const BoundPlan& plan, const Entries& entries, Link& link, const ExecuteOptions& options, Counters& counters);

  void Stop() { handover_.Stop(); }

 protected:
  MessageCursor Cursor() const { return {plan_, entries_, message_bytes_}; }
  // The only move of a message, where its bytes may be one run.
  const PackedMessage::Piece* OnlyPiece(const PackedMessage& message) const {
    return message.pieces.size() == 1 && !message.is_object ? &message.pieces[0] : nullptr;
  }
  Hello MakeHello() const;
  // The place of an error of the hello.
  std::string BeforeFirst() const;

  const BoundPlan& plan_;
  const Entries& entries_;
  Link& link_;
  const ExecuteOptions& options_;
  Counters& counters_;
  const int64_t message_bytes_;
  Handover handover_;
};

class MoveOutbox : public Channel {
 public:
  using Channel::Channel;
  // Some message must be packed: Pack runs beside Send.
  bool is_staged() const;
  Status Pack();
  Status Send();

 private:
  // Where the whole message lies in the source's memory; null: it must be packed.
  const uint8_t* RunOf(const PackedMessage& message) const;
  Status SendOne(const PackedMessage& message, const uint8_t* buffer);
  Status SendObject(const BoundMove& move);
};

class MoveInbox : public Channel {
 public:
  using Channel::Channel;
  bool is_staged() const;
  Status Receive();
  Status Unpack();

 private:
  uint8_t* RunOf(const PackedMessage& message) const;
  Status ReceiveOne(const PackedMessage& message, uint8_t* buffer);
  Status ReceiveObject(const BoundMove& move);
  Status CheckHello();
};

}  // namespace kintsugi::reshard
