#include "runtime/device/device_fault.h"

#include <gtest/gtest.h>

#include <map>

namespace kintsugi::device {
namespace {

struct Expected {
  Scope scope;
  Action action;
};

// The table of NVIDIA's catalogue, written down a second time and grouped by what follows.
std::map<int, Expected> ExpectedTable() {
  std::map<int, Expected> table;
  for (int xid : {13, 31, 94}) table[xid] = {Scope::kProcess, Action::kRestartProcess};
  for (int xid : {43, 45, 48, 63, 137, 154, 171, 172}) table[xid] = {Scope::kNone, Action::kNothing};
  for (int xid : {92, 121, 157}) table[xid] = {Scope::kNone, Action::kWatch};
  for (int xid :
       {46, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 147, 148, 149, 150, 155, 156, 158})
    table[xid] = {Scope::kDevice, Action::kReplaceDevice};
  table[79] = {Scope::kNode, Action::kReplaceNode};
  return table;
}

class XidTableTest : public testing::TestWithParam<int> {};

TEST_P(XidTableTest, SaysWhatFollows) {
  const int xid = GetParam();
  const auto table = ExpectedTable();
  const auto expected = table.find(xid);
  const Verdict verdict = ClassifyXid(xid);
  EXPECT_EQ(verdict.known, expected != table.end());
  EXPECT_NE(verdict.text.find("Xid " + std::to_string(xid)), std::string::npos) << verdict.text;
  if (expected == table.end()) {
    EXPECT_EQ(verdict.action, Action::kReplaceDevice) << "an unknown number is not trusted";
    EXPECT_NE(verdict.text.find("does not know"), std::string::npos) << verdict.text;
    return;
  }
  EXPECT_EQ(verdict.scope, expected->second.scope);
  EXPECT_EQ(verdict.action, expected->second.action) << ActionName(verdict.action);
}

// Every number up to the last one that is known, and some behind.
INSTANTIATE_TEST_SUITE_P(Xid, XidTableTest, testing::Range(1, 181));

TEST(XidTable, HasNoOtherRows) { EXPECT_EQ(XidTable().size(), ExpectedTable().size()); }

TEST(RecoveryAction, SaysWhatFollows) {
  const Action expected[] = {Action::kNothing,       Action::kReplaceDevice, Action::kReplaceNode,
                             Action::kReplaceDevice, Action::kReplaceDevice, Action::kReplaceNode};
  for (int action = 0; action < 6; ++action) {
    EXPECT_EQ(ClassifyRecoveryAction(action).action, expected[action]) << action;
    EXPECT_TRUE(ClassifyRecoveryAction(action).known);
  }
  EXPECT_EQ(ClassifyRecoveryAction(6).action, Action::kReplaceDevice);
  EXPECT_FALSE(ClassifyRecoveryAction(6).known);
  EXPECT_EQ(ClassifyLostDevice().action, Action::kReplaceNode);
}

}  // namespace
}  // namespace kintsugi::device
