#include "runtime/net/control_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/net/unix_socket.h"
#include "tests/unit/net/net_harness.h"

namespace kintsugi::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class ControlSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kintsugi-control-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    folder = root + "/run";
    path = folder + "/control";
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  // Echoes unless told otherwise.
  Result<std::unique_ptr<ControlSocket>> Listen(ControlSocketOptions options = {}) {
    return ControlSocket::Listen(
        loop.io(), path,
        [this](std::string request, ControlSocket::Respond respond) {
          requests.push_back(request);
          if (answer) answer(std::move(request), std::move(respond));
        },
        options);
  }

  // The blocking client in a thread of its own, the server's loop in this one.
  Result<std::string> Ask(const std::string& json, Duration timeout = seconds(20)) {
    Result<std::string> result(Status(StatusCode::kInternal, "no result"));
    std::atomic<bool> done = false;
    std::thread asking([&] {
      result = ControlRequest(path, json, timeout);
      done = true;
    });
    EXPECT_TRUE(loop.RunUntil([&] { return done.load(); }));
    asking.join();
    return result;
  }

  std::string RawExchange(const std::string& bytes, bool end_writing) {
    UniqueFd fd = ConnectUnix(OpenUnixSocketPath(path).value()).value();
    size_t sent = 0;
    std::string received;
    EXPECT_TRUE(loop.RunUntil([&] {
      if (sent < bytes.size()) {
        const ssize_t put = ::send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) sent += static_cast<size_t>(put);
        if (put < 0 && errno != EAGAIN) sent = bytes.size();
      }
      if (sent == bytes.size() && end_writing) ::shutdown(fd.get(), SHUT_WR);
      char buffer[4096];
      const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) received.append(buffer, static_cast<size_t>(got));
      return got == 0 || (got < 0 && errno != EAGAIN);
    }));
    return received;
  }

  Loop loop;
  std::string root, folder, path;
  std::vector<std::string> requests;
  ControlSocket::Handler answer = [](std::string request, ControlSocket::Respond respond) {
    respond(std::move(request));
  };
};

TEST_F(ControlSocketTest, AnswersOneLineWithOneLine) {
  const auto server = Listen();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  for (int i = 0; i < 3; ++i) {
    const auto result = Ask(R"({"command":"status"})");
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(*result, R"({"command":"status"})");
  }
  EXPECT_EQ((*server)->refused(), 0u);
}

TEST_F(ControlSocketTest, AnswersLaterAndOnlyOnce) {
  ControlSocket::Respond kept;
  answer = [&](std::string, ControlSocket::Respond respond) { kept = std::move(respond); };
  const auto server = Listen();
  std::thread asking([&] { EXPECT_EQ(ControlRequest(path, "{}", seconds(20)).value(), "[1]"); });
  EXPECT_TRUE(loop.RunUntil([&] { return kept != nullptr; }));
  if (kept) kept("[1]");
  if (kept) kept("[2]");
  asking.join();
  loop.RunFor(milliseconds(5));
  if (kept) kept("[3]");  // the caller has gone
}

TEST_F(ControlSocketTest, IsOpenToItsOwnerOnly) {
  const mode_t umask_before = ::umask(0);
  const auto server = Listen();
  ::umask(umask_before);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  struct stat file {};
  ASSERT_EQ(::stat(folder.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0700u);
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_TRUE(S_ISSOCK(file.st_mode));
  EXPECT_EQ(file.st_mode & 07777, 0600u);
}

TEST_F(ControlSocketTest, RefusesAFolderThatOthersMayEnter) {
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0750), 0);
  const auto server = Listen();
  EXPECT_EQ(server.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(server.status().message(), HasSubstr("chmod 700"));
}

TEST_F(ControlSocketTest, RefusesAFolderThatBelongsToSomeoneElse) {
  if (::geteuid() == 0) {
    ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
    ASSERT_EQ(::chown(folder.c_str(), 65534, 65534), 0);
  } else {
    path = "/control";  // "/" belongs to root
  }
  const auto server = Listen();
  EXPECT_EQ(server.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(server.status().message(), HasSubstr("belongs to user"));
}

TEST_F(ControlSocketTest, RefusesALinkInPlaceOfTheFolder) {
  ASSERT_EQ(::mkdir((root + "/real").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("real", folder.c_str()), 0);
  EXPECT_FALSE(Listen().ok());
}

TEST_F(ControlSocketTest, RefusesAForeignCallerEvenIfTheFileLetsItIn) {
  EXPECT_TRUE(CheckCaller(1000, 1000).ok());
  EXPECT_EQ(CheckCaller(1000, 0).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckCaller(0, 1000).code(), StatusCode::kPermissionDenied);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user; the decision itself was tested above";
  const auto server = Listen();
  for (const std::string& open : {root, folder, path}) ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Past the client's own check of who listens: the server's is the one under test.
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    const auto place = OpenUnixSocketPath(path);
    if (!place.ok()) ::_exit(3);
    const auto fd = ConnectUnix(*place);
    if (!fd.ok()) ::_exit(4);
    ::fcntl(fd->get(), F_SETFL, 0);
    (void)!::write(fd->get(), "{}\n", 3);
    char line[512] = {};
    const ssize_t got = ::read(fd->get(), line, sizeof line - 1);
    ::_exit(got > 0 && std::string(line).find("PERMISSION_DENIED") != std::string::npos ? 0 : 5);
  }
  int status = -1;
  EXPECT_TRUE(loop.RunUntil([&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(requests.empty());
  EXPECT_EQ((*server)->refused(), 1u);
}

TEST_F(ControlSocketTest, ReplacesAStaleFileButNotALiveRunNorAnythingElse) {
  auto first = Listen();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Listen().status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Ask("{}").ok());
  first->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  {  // what a killed run leaves behind: a socket file that nobody listens to
    const auto place = OpenUnixSocketPath(path).value();
    const UniqueFd dead = ListenUnix(place).value();
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(ControlRequest(path, "{}", seconds(1)).status().code(), StatusCode::kNotFound);
  auto second = Listen();
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_TRUE(Ask("{}").ok());
  second->reset();
  std::ofstream(path) << "a file of the user's";
  EXPECT_EQ(Listen().status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(ControlSocketTest, WorksInAFolderWithALongName) {
  folder = root;
  for (int i = 0; i < 3; ++i) {
    folder += "/" + std::string(60, static_cast<char>('a' + i));
    ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  }
  path = folder + "/control";
  const auto server = Listen();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_TRUE(Ask("{}").ok());
}

TEST_F(ControlSocketTest, RefusesWhatIsNotALineOfJson) {
  const auto server = Listen();
  EXPECT_EQ(Ask("{\"command\":").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Ask("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RawExchange("{}", true), "");  // ended without a line break
  EXPECT_EQ(RawExchange("", true), "");
  EXPECT_EQ((*server)->refused(), 4u);
  EXPECT_TRUE(requests.empty());
  EXPECT_EQ(Ask("{}\n{}").status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Ask("{}").ok());
}

TEST_F(ControlSocketTest, BoundsTheRequest) {
  const auto server = Listen();
  const std::string largest = '"' + std::string((1u << 20) - 2, 'x') + '"';
  const auto result = Ask(largest);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result.status().ok() && *result == largest, true);
  EXPECT_EQ(Ask(largest + ' ').status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(RawExchange(largest + " \n", false), HasSubstr("longer than the limit"));
  EXPECT_THAT(RawExchange(std::string(3u << 20, 'x'), false), HasSubstr("longer than the limit"));
  EXPECT_EQ((*server)->refused(), 2u);
}

TEST_F(ControlSocketTest, TellsASlowCallerAndASlowRun) {
  answer = nullptr;  // a run that never answers
  ControlSocketOptions options;
  options.request_deadline = milliseconds(50);
  options.answer_deadline = milliseconds(50);
  const auto server = Listen(options);
  EXPECT_THAT(RawExchange("{", false), HasSubstr("DEADLINE_EXCEEDED"));
  const auto unanswered = Ask("{}");
  EXPECT_EQ(unanswered.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(unanswered.status().message(), HasSubstr("limit of 50 ms"));
}

TEST_F(ControlSocketTest, BoundsTheCallersAtOnce) {
  ControlSocketOptions options;
  options.callers_max = 2;
  options.request_deadline = milliseconds(100);
  const auto server = Listen(options);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(ConnectUnix(OpenUnixSocketPath(path).value()).value());
  EXPECT_TRUE(Ask("{}").ok());  // after the silent ones had their time
}

TEST_F(ControlSocketTest, RefusesAnAnswerThatIsNotOneLine) {
  answer = [](std::string, ControlSocket::Respond respond) { respond("{\n}"); };
  const auto server = Listen();
  EXPECT_EQ(Ask("{}").status().code(), StatusCode::kInternal);
}

TEST_F(ControlSocketTest, EndsQuietlyWithCallersInside) {
  ControlSocket::Respond kept;
  answer = [&](std::string, ControlSocket::Respond respond) { kept = std::move(respond); };
  auto server = Listen();
  ASSERT_TRUE(server.ok());
  std::thread asking(
      [&] { EXPECT_EQ(ControlRequest(path, "{}", seconds(20)).status().code(), StatusCode::kCommFailure); });
  EXPECT_TRUE(loop.RunUntil([&] { return kept != nullptr; }));
  server->reset();
  if (kept) kept("{}");
  asking.join();
}

TEST(ControlRequest, SaysThatThereIsNoSuchRunAndThatARunDoesNotAnswer) {
  EXPECT_EQ(ControlRequest("/nonexistent/run/control", "{}", seconds(1)).status().code(), StatusCode::kNotFound);
  std::string root = ::testing::TempDir() + "kintsugi-control-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const std::string path = root + "/control";
  EXPECT_EQ(ControlRequest(path, "{}", seconds(1)).status().code(), StatusCode::kNotFound);
  {
    const UniqueFd stopped = ListenUnix(OpenUnixSocketPath(path).value()).value();  // listens, but nobody accepts
    const auto result = ControlRequest(path, "{}", milliseconds(30));
    EXPECT_EQ(result.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(result.status().message(), HasSubstr("limit of 30 ms"));
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace kintsugi::net
