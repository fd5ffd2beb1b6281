// Operation: a statement without macros, checked and typed. What the engine runs, forwards or backwards.
//
// Errors: kInvalidArgument with the statement and the column of the attribute or name.
#pragma once

#include <optional>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "callbacks/state/dtype.h"
#include "replica/aoa/diagnostic.h"
#include "replica/aoa/statement.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

enum class OperationKind { kTransform, kMerge, kSplit, kAdd, kRemove };

// One attribute of a one-to-one statement.
struct Transform {
  enum class Kind { kPermute, kCast, kReshape, kSqueeze, kUnsqueeze };
  Kind kind = Kind::kPermute;
  int column = 0;
  std::vector<int64_t> list;   // kPermute: empty reverses all axes; kReshape: a shape; else axes of length 1
  DType to = DType::kFloat32;  // kCast
  std::optional<DType> from;   // kCast: known only where src_dtype was written
  bool backwards = false;      // kReshape: `list` is the shape it comes from ...
  Shape before{};              // ... and this is where it goes; empty: unknown, for the statement does not say it
};

struct Operation {
  OperationKind kind = OperationKind::kTransform;
  StatementPtr statement;
  const std::vector<Name>* inputs = nullptr;  // of the statement: its left side, or the right one when backwards
  const std::vector<Name>* outputs = nullptr;
  int64_t axis = 0;       // kMerge, kSplit
  bool has_axis = false;  // written, or put there by a macro
  int axis_column = 0;
  std::vector<Transform> transforms;  // kTransform, in order
  bool is_overruled = false;          // backwards: its result is left to another statement (reverse.h)
};

Result<std::vector<Operation>> MakeOperations(const Statements& statements, Reporter& reporter);

}  // namespace kintsugi::aoa
