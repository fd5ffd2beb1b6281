// Where a process stands: tracebacks as Python writes them, system calls as the kernel does, and this very process.
#include "runtime/process/stand.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kintsugi {
namespace {

constexpr std::string_view kTraceback =
    "Thread 0x00007f0000000001 (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
    "\n"
    "Current thread 0x00007f0000000002 [python] (most recent call first):\n"
    "  File \"/opt/venv/lib/python3.11/site-packages/torch/utils/data/loader.py\", line 7 in pull\n"
    "  File \"/kintsugi/run.py\", line 3 in wait\n"
    "  File \"/home/me/my \"data\"/loader.py\", line 88 in fetch\n"
    "  File \"/home/me/train.py\", line 12 in <module>\n";

TEST(Stand, IsTheNewestFrameOfTheProgram) {
  const PythonFrames frames = FramesOf(kTraceback, 0x7f0000000002, "/kintsugi");
  EXPECT_EQ(frames.at, "loader.py:88 (fetch)");
  ASSERT_EQ(frames.stack.size(), 4u);
  EXPECT_EQ(frames.stack[0], "loader.py:7 (pull)");
  EXPECT_EQ(frames.stack[3], "train.py:12 (<module>)");
}

TEST(Stand, IsTheNewestOfAllWhereNoneIsTheProgram) {
  EXPECT_EQ(FramesOf(kTraceback, 0x7f0000000001, "").at, "threading.py:320 (wait)");
  EXPECT_TRUE(FramesOf(kTraceback, 0x7f0000000003, "").stack.empty());
}

TEST(Stand, InTorchIsWhereItCallsWhatHasNoFrames) {
  const auto in_torch = [](const std::string& newest) {
    return FramesOf(
               "Thread 0x0000000000000001 (most recent call first):\n  File \"/kintsugi/watch/calls.py\", line 7 in "
               "call\n  File \"" +
                   newest + "\", line 1 in f\n  File \"/home/me/torch/distributed/train.py\", line 12 in <module>\n",
               1, "/kintsugi")
        .in_torch;
  };
  EXPECT_TRUE(in_torch("/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"));
  EXPECT_TRUE(in_torch("/opt/lib/python3.11/site-packages/torch/autograd/graph.py"));
  EXPECT_FALSE(in_torch("/opt/lib/python3.11/site-packages/torch/utils/data/dataloader.py"));
  EXPECT_FALSE(in_torch("/home/me/train.py")) << "what is below it has called, and is not where it stands";
}

TEST(Stand, AnyTextIsTaken) {
  for (size_t cut = 0; cut <= kTraceback.size(); ++cut)
    (void)FramesOf(kTraceback.substr(0, cut), 0x7f0000000002, "/kintsugi");
  (void)FramesOf("Thread 0x00007f0000000002\n  File \"", 0x7f0000000002, "");
  (void)FramesOf("Thread 0x00007f0000000002\n  File \", line \n", 0x7f0000000002, "");
}

TEST(Stand, SystemCallsHaveNames) {
  EXPECT_EQ(SystemCallName(std::to_string(SYS_read) + " 0x3 0x7ffc 0x10\n"), "read");
  EXPECT_EQ(SystemCallName("running\n"), "");
  EXPECT_EQ(SystemCallName("-1 0x7ffd 0x7f\n"), "");
  EXPECT_EQ(SystemCallName("99999999999999999999 0x7ffd 0x7f\n"), "");
  EXPECT_EQ(SystemCallName(""), "");
}

TEST(Stand, OfThisProcessIsItsStateAlone) {
  const auto marks = std::move(CollectiveMarks::Create()).value();
  StandReader reader(getpid(), marks->memory());
  reader.Begin();
  const ProcessStand stand = reader.Read();
  EXPECT_EQ(stand.state, "R");
  EXPECT_TRUE(stand.at.empty());
  EXPECT_FALSE(stand.python_stopped) << "there is no Python here";
}

TEST(Stand, PythonThatDoesNotAnswerIsStopped) {
  const auto marks = std::move(CollectiveMarks::Create()).value();
  marks->memory().python = 1;
  StandReader reader(getpid(), marks->memory());
  reader.Begin();
  EXPECT_TRUE(reader.Read().python_stopped);
  marks->memory().awake = AwaitQuestion(marks->memory(), 0);
  EXPECT_FALSE(reader.Read().python_stopped);
}

}  // namespace
}  // namespace kintsugi
