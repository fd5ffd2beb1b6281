// NodeCodec: messages between launchers and the controller <-> bytes of one frame.
//
// Errors: as codec.h: kDataLoss for bytes that are no envelope, kInvalidArgument for a foreign job or a value outside
// its range.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi::wire {

std::string Encode(const std::string& job, Term term, const NodeMessage& message);
std::string Encode(const std::string& job, Term term, const NodeOrder& order);

struct NodeFrame {
  Term term;
  NodeMessage message;
};
struct NodeOrderFrame {
  Term term;
  NodeOrder order;
};
Result<NodeFrame> DecodeFromNode(const std::string& job, std::string_view bytes);
Result<NodeOrderFrame> DecodeToNode(const std::string& job, std::string_view bytes);

}  // namespace kintsugi::wire
