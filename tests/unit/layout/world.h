// Short ways to write layouts and their verdicts in tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "replica/layout/builder.h"
#include "replica/layout/validate.h"

namespace kintsugi::layout {

inline ShardedTensor Piece(const std::string& key, Shape global, Shape offset, Shape local,
                           std::vector<int64_t> replica = {}) {
  ShardedTensor tensor;
  tensor.key = key;
  tensor.global_shape = std::move(global);
  tensor.global_offset = std::move(offset);
  tensor.local_shape = std::move(local);
  tensor.replica_id = std::move(replica);
  return tensor;
}

inline ShardedTensor Flat(ShardedTensor tensor, int64_t start, int64_t stop) {
  tensor.flattened_range = FlatRange{start, stop};
  return tensor;
}

inline ShardedObject Object(const std::string& key, Shape grid = {}, Shape offset = {},
                            std::vector<int64_t> replica = {}) {
  ShardedObject object;
  object.key = key;
  object.grid_shape = std::move(grid);
  object.grid_offset = std::move(offset);
  object.replica_id = std::move(replica);
  return object;
}

class World {
 public:
  World& Add(int32_t rank, const ShardedTensor& tensor) { return builder_.AddTensor(rank, tensor), *this; }
  World& Add(int32_t rank, const ShardedObject& object) { return builder_.AddObject(rank, object), *this; }
  Metadata Build() { return builder_.Build(); }
  // The first error; none when all is right.
  std::optional<LayoutError> Verdict(const ValidateOptions& options = {}) {
    const auto errors = Validate(Build(), options);
    return errors.empty() ? std::nullopt : std::optional(errors.front());
  }

 private:
  MetadataBuilder builder_;
};

// Code, ranks and region are these, and the message names the key, the ranks and all of `named`.
inline void ExpectError(const std::optional<LayoutError>& error, ErrorCode code, const std::string& key,
                        const std::vector<int32_t>& ranks, const std::string& region,
                        const std::vector<std::string>& named) {
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, code) << error->message;
  EXPECT_EQ(error->key, key);
  EXPECT_EQ(error->ranks, ranks) << error->message;
  EXPECT_EQ(error->region ? Describe(*error->region) : "none", region) << error->message;
  EXPECT_THAT(error->message, testing::HasSubstr(key));
  for (int32_t rank : ranks) EXPECT_THAT(error->message, testing::HasSubstr(std::to_string(rank)));
  for (const std::string& text : named) EXPECT_THAT(error->message, testing::HasSubstr(text));
  EXPECT_THAT(error->ToStatus().message(), testing::StartsWith(std::string(ErrorCodeName(code)) + ": "));
}

}  // namespace kintsugi::layout
