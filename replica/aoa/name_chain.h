// NameChain: which statements read and assign a name, so that the tensor behind a temporary can be found: the source
// key it was made of, or the destination key that is made of it. Fused macros ask it for shard counts.
//
// A trace follows the values, not the bare names: a name that is assigned again is another value, so a loop cannot
// arise. Permutes on the way are taken into account: the count belongs to the axis that the macro cuts.
//
// Errors: kInvalidArgument: the trace reaches no key, or keys with different counts, or the tensor is cut or merged
// along the same axis on the way; a statement of several names on both sides.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "replica/aoa/diagnostic.h"
#include "replica/aoa/state_names.h"
#include "replica/aoa/statement.h"
#include "replica/aoa/tensors.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

// `key`, or a state of its shape where the key itself is not described; null: neither.
const Tensor* FindTensor(const Tensors& tensors, const StateNames& names, const std::string& key);

// Shards of `key` along `axis`: distinct offsets over the key and its states of the same shape, which must agree, and
// whose shards must be equally long. Nothing in front of errors but the keys.
Result<int64_t> CountShards(const Tensors& tensors, const StateNames& names, const std::string& key, int64_t axis,
                            const Statement& statement, int column, Reporter& reporter);

class NameChain {
 public:
  // `statements` and `names` outlive the chain. A null side is not described: its counts are 1.
  NameChain(const Statements& statements, const StateNames& names, const Tensors* source, const Tensors* destination,
            Reporter& reporter);

  bool KnowsDestination() const { return destination_; }

  // Refuses statements with several names on both sides, and `_` where it says nothing.
  Status Check() const;

  // Over how many shards along `axis` the value is laid out that statement `index` reads as `name`.
  Result<int64_t> SourceShards(size_t index, const Name& name, int64_t axis) const;
  // The same for the value that it assigns to `name`.
  Result<int64_t> DestinationShards(size_t index, const Name& name, int64_t axis) const;

 private:
  struct Visit;
  class Walk;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  // The last statement before `index` that assigns `name`, the first after it.
  size_t WriterBefore(size_t index, std::string_view name) const;
  size_t WriterAfter(size_t index, std::string_view name) const;

  const Statements& statements_;
  const StateNames& names_;
  const Tensors* const source_;
  const Tensors* const destination_;
  Reporter& reporter_;
  std::unordered_map<std::string_view, std::vector<size_t>> readers_, writers_;  // ascending
};

}  // namespace kintsugi::aoa
