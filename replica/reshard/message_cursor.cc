#include "replica/reshard/message_cursor.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::reshard {

std::string PackedMessage::Name(const BoundPlan& plan) const {
  std::string name = plan.Resolve(pieces[0].entry).Name();
  if (pieces.size() > 1) name += " and " + std::to_string(pieces.size() - 1) + " more";
  return name;
}

bool MessageCursor::Next(PackedMessage* message) {
  message->pieces.clear();
  message->size_bytes = 0;
  message->is_object = false;
  while (next_ < entries_.size() && message->pieces.size() < kPiecesMax) {
    const BoundMove move = plan_.Resolve(entries_[next_]);
    const int64_t bytes = move.elements * move.element_bytes;
    const bool is_small = !move.is_object() && bytes < std::min(kLargeBytes, message_bytes_);
    if (!message->pieces.empty() && (!is_small || message->size_bytes + bytes > message_bytes_)) return true;
    PackedMessage::Piece piece{entries_[next_], {done_, 0}};
    const int64_t room = move.is_object() ? move.elements : message_bytes_ / move.element_bytes;
    piece.range.stop = std::min(move.elements, done_ + room);
    KINTSUGI_CHECK(piece.range.start < piece.range.stop, "a message takes elements of each of its moves");
    piece.bytes = (piece.range.stop - piece.range.start) * move.element_bytes;
    done_ = piece.range.stop < move.elements ? piece.range.stop : 0;
    if (done_ == 0) ++next_;
    message->is_object = move.is_object();
    message->size_bytes += piece.bytes;
    message->pieces.push_back(piece);
    if (!is_small) return true;
  }
  return !message->pieces.empty();
}

}  // namespace kintsugi::reshard
