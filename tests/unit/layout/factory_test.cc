#include "replica/layout/factory.h"

#include "replica/layout/shard.h"
#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

// Gate and up projection lie one after the other in one tensor and are stored apart.
ShardedTensorFactory GateUp(const ShardedTensor& tensor) {
  ShardedTensorFactory factory;
  factory.tensor = tensor;
  factory.build = [](const ShardedTensor& whole, std::vector<ShardedTensor>* parts) {
    for (int i = 0; i < 2; ++i) {
      ShardedTensor part = whole;
      part.key += i == 0 ? ".gate" : ".up";
      for (Shape* shape : {&part.global_shape, &part.local_shape, &part.global_offset}) (*shape)[0] /= 2;
      part.memory.size_bytes /= 2;
      if (whole.memory.data) part.memory.data = static_cast<uint8_t*>(whole.memory.data) + i * part.memory.size_bytes;
      parts->push_back(part);
    }
    return Status::Ok();
  };
  factory.merge = [](const std::vector<ShardedTensor>&, const ShardedTensor&) { return Status::Ok(); };
  return factory;
}

ShardedTensor Weight(float* memory) {
  return *FromShardWeight("mlp.w", {DType::kFloat32, {4, 3}, {.data = memory, .size_bytes = 48}}, 0, 1, 2,
                          {.replica_id = {0, 0}});
}

void ExpectRefused(ShardedTensorFactory factory, std::function<void(std::vector<ShardedTensor>&)> mistake,
                   const std::vector<std::string>& named) {
  factory.build = [build = factory.build, mistake](const ShardedTensor& whole, std::vector<ShardedTensor>* parts) {
    const Status built = build(whole, parts);
    mistake(*parts);
    return built;
  };
  const auto parts = BuildParts(factory);
  ASSERT_FALSE(parts.ok());
  EXPECT_EQ(parts.error().code, ErrorCode::kFactory);
  EXPECT_EQ(parts.error().key, "mlp.w");
  for (const std::string& text : named) EXPECT_THAT(parts.error().message, testing::HasSubstr(text));
}

TEST(Factory, StoresItsPartsInsteadOfItsTensor) {
  std::vector<float> memory(12);
  const Metadata metadata = DescribeRank(1, {.factories = {GateUp(Weight(memory.data()))}});
  EXPECT_TRUE(metadata.refusals.empty());
  EXPECT_TRUE(metadata.Find("mlp.w").empty());
  ASSERT_EQ(metadata.keys.size(), 2u);
  EXPECT_EQ(metadata.keys[0].name, "mlp.w.gate");
  EXPECT_EQ(Describe(metadata.Piece(metadata.keys[1], 1).box()), "[[2, 4), [0, 3)]");
}

TEST(Factory, ServesAStateOfTheOptimizerWithTheStatesKeyAndData) {
  std::vector<float> weight(12), moment(12);
  const auto parameter = GateUp(Weight(weight.data()));
  const auto factory = StateFactory(parameter, Weight(moment.data()), "exp_avg");
  EXPECT_EQ(factory.tensor.key, "optimizer.state.exp_avg.mlp.w");
  const auto parts = BuildParts(factory);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  EXPECT_EQ((*parts)[1].key, "optimizer.state.exp_avg.mlp.w.up");
  EXPECT_EQ((*parts)[1].memory.data, moment.data() + 6);
}

TEST(Factory, MustUseAllItIsGiven) {
  std::vector<float> memory(12), other(12);
  const auto factory = GateUp(Weight(memory.data()));
  ExpectRefused(factory, [](auto& parts) { parts[1].key = "fixed"; }, {"'fixed'", "'mlp.w'"});
  ExpectRefused(factory, [](auto& parts) { parts[1].replica_id = {3}; }, {"[3]", "[0, 0]"});
  ExpectRefused(factory, [](auto& parts) { parts[1].dtype = DType::kInt32; }, {"int32", "float32"});
  ExpectRefused(factory, [](auto& parts) { parts.pop_back(); }, {"6 elements of 12"});
  ExpectRefused(factory, [](auto& parts) { parts[1].global_offset[0] = 3; }, {"outside"});
  ExpectRefused(factory, [&](auto& parts) { parts[1].memory.data = memory.data() + 5; }, {"byte 20", "byte 24"});
  ExpectRefused(factory, [&](auto& parts) { parts[0].memory.data = parts[1].memory.data; },
                {"gap", "byte 24", "byte 0"});
  ExpectRefused(factory, [&](auto& parts) { parts[1].memory.size_bytes = 20; }, {"44 bytes of 48"});
  ExpectRefused(factory, [](auto& parts) { parts.clear(); }, {"0 elements of 12"});
  // A build that ignores a flat range makes parts of the whole box.
  auto flat = factory;
  flat.tensor = *Flatten(
      factory.tensor.memory.data ? *FromShardWeight("mlp.w", {DType::kFloat32, {4, 3}, {}}, 0, 1, 2) : ShardedTensor{},
      {0, 6});
  flat.build = [build = factory.build](ShardedTensor whole, std::vector<ShardedTensor>* parts) {
    whole.flattened_range.reset();
    return build(whole, parts);
  };
  ExpectRefused(flat, [](auto&) {}, {"12 elements of 6"});
}

TEST(Factory, ThatFailsIsARefusalOfItsRank) {
  auto factory = GateUp(Weight(nullptr));
  factory.build = nullptr;
  auto errors = Validate(DescribeRank(4, {.factories = {factory}}));
  ASSERT_FALSE(errors.empty());
  ExpectError(errors[0], ErrorCode::kFactory, "mlp.w", {4}, "none", {"no build function"});
  factory.build = [](const ShardedTensor&, std::vector<ShardedTensor>*) {
    return Status(StatusCode::kUnavailable, "no luck");
  };
  errors = Validate(DescribeRank(4, {.factories = {factory}}));
  ExpectError(errors[0], ErrorCode::kFactory, "mlp.w", {4}, "none", {"no luck"});
}

TEST(Factory, MergesOnlyThePartsItMakes) {
  std::vector<float> memory(12);
  auto factory = GateUp(Weight(memory.data()));
  int merged = 0;
  factory.merge = [&merged](const std::vector<ShardedTensor>& parts, const ShardedTensor&) {
    merged += static_cast<int>(parts.size());
    return Status::Ok();
  };
  const auto parts = *BuildParts(factory);
  const auto whole = MergeParts(factory, parts);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->key, "mlp.w");
  EXPECT_EQ(merged, 2);
  EXPECT_FALSE(MergeParts(factory, {parts[0]}).ok());
  EXPECT_FALSE(MergeParts(factory, {parts[1], parts[0]}).ok());
  EXPECT_THAT(MergeParts(factory, {parts[0], parts[0]}).error().message, testing::HasSubstr("mlp.w.gate"));
  EXPECT_EQ(merged, 2);
  factory.merge = nullptr;
  EXPECT_THAT(MergeParts(factory, parts).error().message, testing::HasSubstr("no merge function"));
}

TEST(LocalNonpersistent, IsNotStoredAndItsKeyIsNobodyElses) {
  EXPECT_TRUE(DescribeRank(0, {.local = {{"scratch"}}}).keys.empty());
  const auto errors = Validate(
      DescribeRank(5, {.tensors = {Piece("w", {1}, {0}, {1})}, .objects = {Object("o")}, .local = {{"w"}, {"o"}}}));
  ASSERT_EQ(errors.size(), 2u);
  ExpectError(errors[1], ErrorCode::kKey, "w", {5}, "none", {"both local and stored"});
}

}  // namespace
}  // namespace kintsugi::layout
