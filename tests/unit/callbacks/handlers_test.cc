#include "callbacks/handlers/handlers.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

Status CountCall(HandlerContext&, void* context) {
  ++*static_cast<int*>(context);
  return Status::Ok();
}
Status Refuse(HandlerContext& call, void*) {
  return {StatusCode::kCommFailure, "peer of step " + call.step.ToString() + " is gone"};
}
Status Throw(HandlerContext&, void*) { throw std::runtime_error("group is torn"); }
Status ThrowNumber(HandlerContext&, void*) { throw 7; }

TEST(HandlerKind, HasADistinctNameForEveryKind) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kHandlerKinds; ++i) names.insert(HandlerKindName(static_cast<HandlerKind>(i)));
  EXPECT_EQ(names.size(), kHandlerKinds);
  EXPECT_EQ(HandlerKindName(HandlerKind::kRebuildGroup), "rebuild_group");
}

TEST(HandlerRegistry, CallsWhatWasRegisteredLastWithItsContext) {
  HandlerRegistry registry;
  int first = 0, second = 0;
  ASSERT_TRUE(registry.Register(HandlerKind::kClean, CountCall, &first).ok());
  ASSERT_TRUE(registry.Register(HandlerKind::kClean, CountCall, &second).ok());
  HandlerContext call;
  EXPECT_TRUE(registry.Call(HandlerKind::kClean, call).ok());
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
  EXPECT_TRUE(registry.Has(HandlerKind::kClean));
  EXPECT_FALSE(registry.Has(HandlerKind::kStop));
}

TEST(HandlerRegistry, AMissingHandlerIsAnErrorThatNamesItsKindExceptForExit) {
  HandlerRegistry registry;
  HandlerContext call;
  for (size_t i = 0; i < kHandlerKinds; ++i) {
    const auto kind = static_cast<HandlerKind>(i);
    const Status status = registry.Call(kind, call);
    if (kind == HandlerKind::kExit) {
      EXPECT_TRUE(status.ok());
      continue;
    }
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(Names(status.message(), std::string(HandlerKindName(kind)))) << status.ToString();
  }
}

TEST(HandlerRegistry, KeepsTheCodeOfAnErrorAndNamesTheHandler) {
  HandlerRegistry registry;
  ASSERT_TRUE(registry.Register(HandlerKind::kRepair, Refuse, nullptr).ok());
  HandlerContext call;
  call.step = Step(12);
  const Status status = registry.Call(HandlerKind::kRepair, call);
  EXPECT_EQ(status.code(), StatusCode::kCommFailure);
  EXPECT_TRUE(Names(status.message(), "'repair'", "12")) << status.ToString();
}

TEST(HandlerRegistry, TurnsWhatAHandlerThrowsIntoAStatus) {
  HandlerRegistry registry;
  ASSERT_TRUE(registry.Register(HandlerKind::kStop, Throw, nullptr).ok());
  ASSERT_TRUE(registry.Register(HandlerKind::kClean, ThrowNumber, nullptr).ok());
  HandlerContext call;
  const Status known = registry.Call(HandlerKind::kStop, call);
  EXPECT_EQ(known.code(), StatusCode::kInternal);
  EXPECT_TRUE(Names(known.message(), "'stop'", "group is torn")) << known.ToString();
  const Status unknown = registry.Call(HandlerKind::kClean, call);
  EXPECT_EQ(unknown.code(), StatusCode::kInternal);
  EXPECT_TRUE(Names(unknown.message(), "'clean'")) << unknown.ToString();
}

TEST(HandlerRegistry, RefusesANullFunctionAndAKindThatDoesNotExist) {
  HandlerRegistry registry;
  const Status null = registry.Register(HandlerKind::kSave, nullptr, nullptr);
  EXPECT_EQ(null.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Names(null.message(), "'save'")) << null.ToString();

  const auto foreign = static_cast<HandlerKind>(200);
  HandlerContext call;
  EXPECT_EQ(registry.Register(foreign, CountCall, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(registry.Call(foreign, call).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Names(registry.Call(foreign, call).message(), "200"));
  EXPECT_FALSE(registry.Has(foreign));
  EXPECT_EQ(HandlerKindName(foreign), "unknown");
}

}  // namespace
}  // namespace kintsugi
