// ScriptedLink: a link whose other end is a text of bytes, however mad. Long messages (the state itself) are made of
// one byte of the text, so that inputs stay small; a recording link writes such a text down.
//
// Threads: one.
// Errors: kCommFailure where the text ends or too much was sent.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "replica/stream/link.h"
#include "runtime/base/check.h"

namespace kintsugi::fuzz {

inline constexpr uint64_t kLongMessageBytes = 4096;
inline constexpr uint64_t kScriptBytesMax = 4u << 20;  // one run's messages, both ways together

class ScriptedLink final : public Link {
 public:
  explicit ScriptedLink(std::string_view script) : script_(script) {}

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint, PieceObserver* observer) override {
    KINTSUGI_CHECK(offset <= memory.size_bytes && size_bytes <= memory.size_bytes - offset,
                   "bytes outside of the state");
    if (!Passes(size_bytes)) return Gone("send");
    if (observer != nullptr) observer->Passed(static_cast<const uint8_t*>(memory.data) + offset, size_bytes);
    return Status::Ok();
  }

  Status Receive(void* data, uint64_t size_bytes, TimePoint, PieceObserver* observer) override {
    const uint64_t said = size_bytes > kLongMessageBytes ? 1 : size_bytes;
    if (said > script_.size() || !Passes(size_bytes)) return Gone("receive");
    if (said == size_bytes && said > 0) std::memcpy(data, script_.data(), size_bytes);
    if (said != size_bytes) std::memset(data, script_.front(), size_bytes);
    script_.remove_prefix(said);
    if (observer != nullptr) observer->Passed(data, size_bytes);
    return Status::Ok();
  }

  void Abort() override {}
  Rank peer() const override { return Rank(1); }
  std::string_view kind() const override { return "scripted"; }

 private:
  bool Passes(uint64_t size_bytes) {
    if (size_bytes > kScriptBytesMax - passed_) return false;
    passed_ += size_bytes;
    return true;
  }
  Status Gone(const char* what) const { return internal::LinkPeerGone(*this, what, "the script has ended"); }

  std::string_view script_;
  uint64_t passed_ = 0;
};

// Passes everything to another link and writes down what it receives.
class RecordingLink final : public Link {
 public:
  explicit RecordingLink(Link& link) : link_(link) {}

  Status Send(const Memory& memory, uint64_t offset, uint64_t size_bytes, TimePoint deadline,
              PieceObserver* observer) override {
    return link_.Send(memory, offset, size_bytes, deadline, observer);
  }
  Status Receive(void* data, uint64_t size_bytes, TimePoint deadline, PieceObserver* observer) override {
    const Status status = link_.Receive(data, size_bytes, deadline, observer);
    script_.append(static_cast<const char*>(data), size_bytes > kLongMessageBytes ? 1 : size_bytes);
    return status;
  }
  void Abort() override { link_.Abort(); }
  Rank peer() const override { return link_.peer(); }
  std::string_view kind() const override { return link_.kind(); }
  const std::string& script() const { return script_; }

 private:
  Link& link_;
  std::string script_;
};

}  // namespace kintsugi::fuzz
