#include "runtime/device/device_event.h"

#include <gtest/gtest.h>

namespace kintsugi::device {
namespace {

TEST(SimulatedLine, IsReadAsItWasWritten) {
  for (const char* line :
       {"xid=94", "xid=94 device=1", "xid=79 device=0 pid=4711", "recovery=2 device=3", "lost=1 device=2"}) {
    const auto event = ParseSimulatedLine(line);
    ASSERT_TRUE(event) << line;
    EXPECT_EQ(SimulatedLine(*event), line);
  }
  const auto event = ParseSimulatedLine("device=1 pid=7 xid=95");
  ASSERT_TRUE(event);
  EXPECT_EQ(event->number, 95);
  EXPECT_EQ(event->device, 1);
  EXPECT_EQ(event->pid, 7);
}

TEST(SimulatedLine, ThatMakesNoSenseIsNothing) {
  for (const char* line : {"", "xid", "xid=", "xid=-1", "xid=9a", "device=1", "xid=1 xid=2", "xid=1 colour=2",
                           "xid=99999999999", "xid=1  device=2"})
    EXPECT_FALSE(ParseSimulatedLine(line)) << line;
  EXPECT_FALSE(ParseSimulatedLine("xid=1 " + std::string(kDeviceLineBytesMax, 'x')));
}

TEST(KernelLine, GivesXidDeviceAndProcess) {
  const auto event = ParseKernelLine(
      "4,2741,88123456,-;NVRM: Xid (PCI:0000:3b:00): 94, pid=4711, name=python, Contained: CE User Channel (0x9). RST: "
      "No, D-RST: No");
  ASSERT_TRUE(event);
  EXPECT_EQ(event->number, 94);
  EXPECT_EQ(event->pid, 4711);
  EXPECT_EQ(event->pci, "0000:3b:00");
  EXPECT_EQ(event->text.rfind("NVRM: Xid", 0), 0u);
}

TEST(KernelLine, WithoutAProcessHasNone) {
  const auto event =
      ParseKernelLine("NVRM: Xid (PCI:0000:86:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
  ASSERT_TRUE(event);
  EXPECT_EQ(event->number, 79);
  EXPECT_EQ(event->pid, 0);
}

TEST(KernelLine, OfAnythingElseIsNothing) {
  for (const char* line : {"", "usb 1-1: new device", "NVRM: loading NVIDIA UNIX Driver", "NVRM: Xid (PCI:0000:3b:00)",
                           "NVRM: Xid (PCI:): 94", "NVRM: Xid (PCI:0000:3b:00): none"})
    EXPECT_FALSE(ParseKernelLine(line)) << line;
}

TEST(DeviceEvent, IsClassifiedByItsKind) {
  EXPECT_EQ(Classify({.kind = EventKind::kXid, .number = 94}).action, Action::kRestartProcess);
  EXPECT_EQ(Classify({.kind = EventKind::kRecoveryAction, .number = 1}).action, Action::kReplaceDevice);
  EXPECT_EQ(Classify({.kind = EventKind::kLost}).action, Action::kReplaceNode);
}

}  // namespace
}  // namespace kintsugi::device
