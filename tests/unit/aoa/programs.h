// Short ways to write programs and to read answers in tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "replica/aoa/engine.h"

namespace kintsugi::aoa {

// A tensor of `shape` in `count` equal shards along `axis`.
inline Tensor Sharded(Shape shape, size_t axis, int64_t count, DType dtype = DType::kFloat32) {
  Tensor tensor{shape, dtype, {}};
  for (int64_t i = 0; i < count; ++i) {
    Shard shard{Shape(shape.size(), 0), shape};
    shard.shape[axis] /= count;
    shard.offset[axis] = i * shard.shape[axis];
    tensor.shards.push_back(shard);
  }
  return tensor;
}
inline Tensor Whole(Shape shape, DType dtype = DType::kFloat32) { return {std::move(shape), dtype, {}}; }

inline Engine MustBuild(Program program) {
  auto engine = Engine::Build(std::move(program));
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return std::move(Engine::Build({})).value();
  return std::move(engine).value();
}

// "d0[0:1, 0:2] from s0[0:1, 0:2]", with " by float64, [1, 0]" behind where there are steps; "; " between pieces.
inline std::string Ask(const Engine& engine, const Target& target) {
  const auto pieces = engine.FindShardSources(target);
  if (!pieces.ok()) return pieces.status().ToString();
  std::string text;
  for (const ShardSource& piece : *pieces) {
    if (!text.empty()) text += "; ";
    text += target.key + DescribeBox(piece.target_box) + " from " + piece.source_key + DescribeBox(piece.source_box);
    for (size_t i = 0; i < piece.steps.size(); ++i) text += (i == 0 ? " by " : ", ") + piece.steps[i].ToString();
  }
  return text;
}
inline std::string Ask(const Engine& engine, const std::string& key, const IndexBox& box) {
  return Ask(engine, Target{key, box, std::nullopt});
}
inline std::string AskAll(const Engine& engine, const std::string& key) {
  const auto found = engine.outputs().find(key);
  return found == engine.outputs().end() ? "no output " + key : Ask(engine, key, WholeBox(found->second.shape));
}

// The failure of a program; an empty one where it succeeds.
inline Diagnostic Failure(Program program) {
  const auto engine = Engine::Build(std::move(program));
  EXPECT_FALSE(engine.ok()) << "the program was accepted";
  return engine.ok() ? Diagnostic() : engine.error();
}

}  // namespace kintsugi::aoa
