// MessageCursor: the messages that one rank sends another, one after the other (private to this folder).
//
// What: sender and receiver derive the same messages from the same plan: a move of at least kLargeBytes travels in
// messages of its own, cut at elements; smaller ones are collected until the next does not fit or kPiecesMax are; an
// object travels alone. So no message says what is in it, none is larger than `message_bytes`, and each is ready to be
// sent from, or received into, final memory where that is one run. Memory: one message.
// Threads: one.
#pragma once

#include "replica/reshard/copy_elements.h"
#include "runtime/base/check.h"

namespace kintsugi::reshard {

inline constexpr int64_t kLargeBytes = 64 * 1024;
// The largest element has 16 bytes.
inline constexpr int64_t kMessageBytesMin = 16;
// What a message is made of has a bound too.
inline constexpr size_t kPiecesMax = 1024;

struct PackedMessage {
  struct Piece {
    BoundPlan::Entry entry;
    ElementRange range;
    int64_t bytes = 0;
  };
  std::vector<Piece> pieces;
  int64_t size_bytes = 0;
  bool is_object = false;

  // The first move and how many more there are: for errors.
  std::string Name(const BoundPlan& plan) const;
};

class MessageCursor {
 public:
  // REQUIRES: message_bytes >= kMessageBytesMin.
  MessageCursor(const BoundPlan& plan, const std::vector<BoundPlan::Entry>& entries, int64_t message_bytes)
      : plan_(plan), entries_(entries), message_bytes_(message_bytes) {
    KINTSUGI_CHECK(message_bytes >= kMessageBytesMin, "a message holds an element");
  }

  // False: that was the last.
  bool Next(PackedMessage* message);

 private:
  const BoundPlan& plan_;
  const std::vector<BoundPlan::Entry>& entries_;
  const int64_t message_bytes_;
  size_t next_ = 0;
  int64_t done_ = 0;  // elements of the next move that earlier messages took
};

}  // namespace kintsugi::reshard
