// The launcher's end of the socket to a warm process; the other end is played by the test.
#include "runtime/process/fork_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace kintsugi {
namespace {

class ForkServerTest : public testing::Test {
 protected:
  ForkServerTest() : server_(ForkServer::Create().value()), peer_(::dup(server_.server_end())) {
    server_.CloseServerEnd();
  }

  void Say(const std::string& text) {
    ASSERT_EQ(::send(peer_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  // Takes a request and answers it.
  std::thread Answer(const std::string& text) {
    return std::thread([this, text] {
      std::array<char, 65536> bytes;
      alignas(cmsghdr) std::array<char, 1024> control;
      iovec piece{bytes.data(), bytes.size()};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t size = ::recvmsg(peer_.get(), &message, 0);
      if (size > 0) request_.assign(bytes.data(), static_cast<size_t>(size));
      if (const cmsghdr* const header = CMSG_FIRSTHDR(&message))
        for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
          passed_.emplace_back(fd);
        }
      (void)::send(peer_.get(), text.data(), text.size(), 0);
    });
  }

  ForkServer server_;
  UniqueFd peer_;
  std::string request_;
  std::vector<UniqueFd> passed_;
};

TEST_F(ForkServerTest, IsReadyOnceItSaysSo) {
  EXPECT_FALSE(server_.ready());
  EXPECT_EQ(server_.Fork({}).status().code(), StatusCode::kUnavailable);
  Say("ready");
  EXPECT_TRUE(server_.ready());
  EXPECT_TRUE(server_.ready());
}

TEST_F(ForkServerTest, TellsWhyItWillNeverBe) {
  Say("refused it has 3 more threads");
  EXPECT_FALSE(server_.ready());
  EXPECT_EQ(server_.refusal(), "it has 3 more threads");
}

TEST_F(ForkServerTest, AServerThatEndedIsNoneAnyMore) {
  peer_.Reset();
  EXPECT_FALSE(server_.ready());
  EXPECT_EQ(server_.refusal(), "it has ended");
}

TEST_F(ForkServerTest, HandsOverEnvironmentAndDescriptorsAndWatchesBeforeItGoes) {
  Say("ready");
  const pid_t copy = ::fork();
  if (copy == 0) {
    ::pause();
    ::_exit(0);
  }
  UniqueFd passed(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ProcessSpec spec;
  spec.environment["RANK"] = "5";
  spec.passed_fds = {{passed.get(), "PAGE"}};
  std::thread peer = Answer("pid " + std::to_string(copy));
  pid_t watched = -1;
  Result<SpawnedProcess> process = server_.Fork(spec, [&](pid_t pid) {
    watched = pid;
    return Status::Ok();
  });
  peer.join();
  ASSERT_TRUE(process.ok()) << process.status().ToString();
  EXPECT_EQ(process->pid, copy);
  EXPECT_EQ(watched, copy);
  const std::string begins = '\0' + request_;
  EXPECT_NE(begins.find(std::string("\0RANK=5\0", 8)), std::string::npos);
  EXPECT_NE(begins.find(std::string("\0PAGE=3\0", 8)), std::string::npos);
  ASSERT_EQ(passed_.size(), 4u);  // output, errors, the socket, and the one that is passed
  char go = 0;
  EXPECT_EQ(::recv(passed_[2].get(), &go, 1, 0), 1);
  EXPECT_EQ(go, 'g');
  EXPECT_TRUE(KillAndReap(copy, process->pidfd.get()));
}

TEST_F(ForkServerTest, ARefusalStartsNothingAndIsFinal) {
  Say("ready");
  std::thread peer = Answer("refused a device");
  const Status status = server_.Fork({}).status();
  peer.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("a device"), std::string::npos) << status.message();
  EXPECT_FALSE(server_.ready());
}

TEST_F(ForkServerTest, NoAnswerIsTakenForANumberThatIsNone) {
  for (const std::string said : {"pid", "pid ", "pid 12x", "pid -4", "pid 0", "hello", "pid 99999999999999"}) {
    ForkServer server = ForkServer::Create().value();
    peer_.Reset(::dup(server.server_end()));
    server.CloseServerEnd();
    Say("ready");
    std::thread peer = Answer(said);
    EXPECT_EQ(server.Fork({}).status().code(), StatusCode::kUnavailable) << said;
    peer.join();
  }
}

TEST_F(ForkServerTest, ACopyThatNobodyMayWatchDoesNotBegin) {
  Say("ready");
  const pid_t copy = ::fork();
  if (copy == 0) {
    ::pause();
    ::_exit(0);
  }
  std::thread peer = Answer("pid " + std::to_string(copy));
  const Status status =
      server_.Fork({}, [](pid_t) { return Status(StatusCode::kResourceExhausted, "no guard"); }).status();
  peer.join();
  EXPECT_EQ(status.message(), "no guard");
  EXPECT_EQ(::waitpid(copy, nullptr, WNOHANG), -1) << "it was killed and reaped";
}

}  // namespace
}  // namespace kintsugi
