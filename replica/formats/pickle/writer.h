// PickleWriter: a pickle of protocol 2, opcode by opcode, in the set that torch's weights_only loader reads.
//
// What: methods in the order of the stack machine: values push, Call takes callee and arguments. Texts and globals are
// written in full each time; nothing is remembered, so two writers of the same values write the same bytes.
// Threads: one. REQUIRES: what a method pops was pushed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "replica/formats/pickle/tree.h"
#include "runtime/base/check.h"

namespace kintsugi::formats::pickle {

inline constexpr size_t kBigIntBytesMax = 255;

class PickleWriter {
 public:
  PickleWriter() : bytes_("\x80\x02") {}
  // A writer of protocol 4, for readers that need raw bytes and are Python's own.
  static PickleWriter Protocol4() {
    PickleWriter writer;
    writer.bytes_[1] = '\x04';
    return writer;
  }

  void None() { bytes_ += 'N'; }
  void Bool(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void Int(int64_t value);
  // REQUIRES: kBigIntBytesMax bytes at most.
  void BigInt(std::string_view two_complement);
  void Float(double value);
  void Text(std::string_view text);
  // As _codecs.encode(text, 'latin1'): bytes have no opcode in protocol 2.
  void Bytes(std::string_view bytes);
  // Protocol 4: `size` raw bytes, which the caller writes behind Take().
  void RawBytes(uint64_t size);
  void Global(std::string_view module, std::string_view name);
  void Mark() { bytes_ += '('; }
  void Tuple() { bytes_ += 't'; }  // of what was pushed since the mark
  void EmptyTuple() { bytes_ += ')'; }
  void EmptyList() { bytes_ += ']'; }
  void Appends() { bytes_ += 'e'; }
  void EmptyDict() { bytes_ += '}'; }
  void SetItems() { bytes_ += 'u'; }
  void Call() { bytes_ += 'R'; }
  void New() { bytes_ += "\x81"; }
  void Build() { bytes_ += 'b'; }
  void PersistentId() { bytes_ += 'Q'; }
  void Numbers(std::span<const int64_t> numbers);  // a tuple
  // torch.Size of them.
  void Size(std::span<const int64_t> numbers);

  // The bytes with STOP; the writer is empty afterwards.
  std::string Finish() {
    KINTSUGI_CHECK(!bytes_.empty(), "a pickle is finished that nothing was written into since it was taken");
    bytes_ += '.';
    return std::move(bytes_);
  }
  // What was written since the last Take.
  std::string Take() { return std::exchange(bytes_, std::string()); }
  uint64_t size_bytes() const { return bytes_.size(); }

 private:
  std::string bytes_;
};

// An array of NumPy up to its bytes, as its ndarray.__reduce__ has it before protocol 5; behind them come Tuple and Build.
// `module`: "numpy.core.multiarray", or NumPy 2's name of it; `code`: "f4", ..
void OpenNumpyArray(std::string_view module, std::string_view code, std::span<const int64_t> shape,
                    PickleWriter* writer);

// Which globals a value may name: what weights_only allows, and plain data classes that only hold attributes.
bool IsSafeGlobal(std::string_view module, std::string_view name);
// Of these, what weights_only allows by itself (torch/_weights_only_unpickler.py, 2.13).
bool IsWeightsOnlyGlobal(std::string_view module, std::string_view name);

// Writes a value of a tree again. kInvalidArgument names what is not in the safe subset: other globals, persistent ids,
// numbers of more than kBigIntBytesMax bytes, values nested deeper than kDepthMax or in themselves.
Status WriteNode(const Tree& tree, NodeId id, const std::string& place, PickleWriter* writer);

}  // namespace kintsugi::formats::pickle
