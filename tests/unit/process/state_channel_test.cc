// StateChannel: files get across, in any number; nothing that comes from the other end does harm.
#include "runtime/process/state_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <thread>

namespace kintsugi {
namespace {

int OpenFiles() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

TEST(StateChannel, PassesFilesThatOutliveTheirSender) {
  auto [mine, theirs] = StateChannel::CreatePair().value();
  {
    const UniqueFd file(memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(write(file.get(), "state", 5), 5);
    ASSERT_TRUE(theirs.Send(StateWord::kTensors, 77, {file.get()}).ok());
  }
  theirs.Close();
  const StateMessage got = mine.Receive().value();
  EXPECT_EQ(got.word, StateWord::kTensors);
  EXPECT_EQ(got.shape, 77u);
  ASSERT_EQ(got.files.size(), 1u);
  EXPECT_NE(fcntl(got.files[0].get(), F_GETFD) & FD_CLOEXEC, 0) << "other children must not inherit it";
  char text[5];
  ASSERT_EQ(pread(got.files[0].get(), text, 5, 0), 5);
  EXPECT_EQ(std::string(text, 5), "state");
  EXPECT_EQ(mine.Receive().status().code(), StatusCode::kEnded);
}

TEST(StateChannel, PassesAThousandInOrder) {
  auto [mine, theirs] = StateChannel::CreatePair().value();
  std::vector<UniqueFd> files;
  std::vector<int> numbers;
  for (int i = 0; i < 450; ++i) {
    files.emplace_back(memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(write(files.back().get(), &i, sizeof i), static_cast<ssize_t>(sizeof i));
    numbers.push_back(files.back().get());
  }
  std::thread sender([&, end = &theirs] { EXPECT_TRUE(end->Send(StateWord::kTensors, 1, numbers).ok()); });
  const Result<StateMessage> got = mine.Receive(SteadyClock::SteadyNow() + std::chrono::seconds(20));
  sender.join();
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ASSERT_EQ(got->files.size(), 450u);
  for (int i = 0; i < 450; ++i) {
    int number = -1;
    ASSERT_EQ(pread(got->files[static_cast<size_t>(i)].get(), &number, sizeof number, 0),
              static_cast<ssize_t>(sizeof number));
    EXPECT_EQ(number, i);
  }
}

TEST(StateChannel, NamesTheLimit) {
  auto [mine, theirs] = StateChannel::CreatePair().value();
  const Status refused = theirs.Send(StateWord::kTensors, 0, std::vector<int>(StateChannel::kFilesMax + 1, 0));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("1024"), std::string::npos) << refused.message();
}

TEST(StateChannel, SaysThatNothingIsThere) {
  auto [mine, theirs] = StateChannel::CreatePair().value();
  EXPECT_EQ(mine.Receive().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(mine.Receive(SteadyClock::SteadyNow() + std::chrono::milliseconds(20)).status().code(),
            StatusCode::kNotFound);
  mine.Close();
  EXPECT_EQ(theirs.Send(StateWord::kAsk).code(), StatusCode::kUnavailable);
}

// Whatever words stand in a message: refused or taken, and no descriptor is left behind.
TEST(StateChannel, RefusesNonsense) {
  const int before = OpenFiles();
  for (uint64_t round = 0; round < 4000; ++round) {
    auto [mine, theirs] = StateChannel::CreatePair().value();
    uint64_t words[6];
    uint64_t seed = round * 0x9E3779B97F4A7C15ull + 1;
    for (uint64_t& word : words) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      word = seed >> 33 & 3;
    }
    words[0] = round % 2 ? 0x6b74732d68656c64 : seed;
    const size_t size = round % 7 ? 40 : seed % 48;
    iovec data{words, size};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    const size_t files = round % 3;
    if (files > 0) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(files * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(files * sizeof(int));
    }
    ASSERT_GE(sendmsg(theirs.fd(), &message, MSG_NOSIGNAL), 0) << errno;
    ASSERT_GE(sendmsg(theirs.fd(), &message, MSG_NOSIGNAL), 0);
    theirs.Close();
    for (int i = 0; i < 4; ++i) {
      const Result<StateMessage> got = mine.Receive();
      if (got.ok()) {
        EXPECT_EQ(got->files.size(), words[3]);
      }
      if (got.status().code() == StatusCode::kEnded) break;
    }
  }
  EXPECT_EQ(OpenFiles(), before);
}

}  // namespace
}  // namespace kintsugi
