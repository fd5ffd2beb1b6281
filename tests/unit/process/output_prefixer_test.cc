#include "runtime/process/output_prefixer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/unique_fd.h"
#include "tests/unit/process/process_harness.h"

namespace kintsugi {
namespace {

using ::testing::HasSubstr;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe MakePipe(int flags = 0) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC | flags), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string ReadToEnd(int fd) {
  std::string text;
  char bytes[65536];
  for (;;) {
    const ssize_t size = ::read(fd, bytes, sizeof(bytes));
    if (size < 0 && errno == EAGAIN) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    if (size <= 0) return text;
    text.append(bytes, static_cast<size_t>(size));
  }
}

OutputPrefixer::Options To(const Pipe& out, const Pipe& err) {
  OutputPrefixer::Options options;
  options.stdout_fd = out.write.get();
  options.stderr_fd = err.write.get();
  return options;
}

TEST(OutputPrefixer, NamesTheRankOnTheStreamThatTheLineCameFrom) {
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  {
    OutputPrefixer prefixer(To(out, err));
    prefixer.WriteLine(Rank(2), OutputStream::kStdout, "hello \xff world");
    prefixer.WriteLine(Rank(0), OutputStream::kStderr, "");
    prefixer.WriteText(OutputStream::kStdout, "own text\n");
  }
  out.write.Reset();
  err.write.Reset();
  EXPECT_EQ(ReadToEnd(out.read.get()), "[rank 2] hello \xff world\nown text\n") << "no colour outside a terminal";
  EXPECT_EQ(ReadToEnd(err.read.get()), "[rank 0] \n");
}

TEST(OutputPrefixer, ColoursByRankOnlyWhenAskedOrOnATerminal) {
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  OutputPrefixer::Options options = To(out, err);
  options.color = OutputPrefixer::Color::kAlways;
  {
    OutputPrefixer prefixer(options);
    prefixer.WriteLine(Rank(0), OutputStream::kStdout, "a");
    prefixer.WriteLine(Rank(1), OutputStream::kStdout, "b");
  }
  out.write.Reset();
  EXPECT_EQ(ReadToEnd(out.read.get()), "\x1b[36m[rank 0]\x1b[0m a\n\x1b[33m[rank 1]\x1b[0m b\n");
}

// A terminal whose screen can be read.
class PseudoTerminal {
 public:
  PseudoTerminal() : screen_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (!screen_.valid() || ::grantpt(screen_.get()) != 0 || ::unlockpt(screen_.get()) != 0) return;
    keyboard_.Reset(::open(::ptsname(screen_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  }
  bool usable() const { return keyboard_.valid(); }
  int fd() const { return keyboard_.get(); }
  std::string Screen() {
    char bytes[1024];
    const ssize_t size = ::read(screen_.get(), bytes, sizeof(bytes));
    return std::string(bytes, size > 0 ? static_cast<size_t>(size) : 0);
  }

 private:
  UniqueFd screen_;
  UniqueFd keyboard_;
};

TEST(OutputPrefixer, ObeysNoColorOnATerminal) {
  PseudoTerminal terminal;
  if (!terminal.usable()) GTEST_SKIP() << "no pseudo terminals here";
  OutputPrefixer::Options options;
  options.stdout_fd = options.stderr_fd = terminal.fd();
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  {
    OutputPrefixer prefixer(options);
    prefixer.WriteLine(Rank(0), OutputStream::kStdout, "a");
  }
  EXPECT_THAT(terminal.Screen(), HasSubstr("\x1b[36m[rank 0]"));
  ::setenv("NO_COLOR", "1", 1);
  {
    OutputPrefixer prefixer(options);
    prefixer.WriteLine(Rank(0), OutputStream::kStdout, "a");
  }
  ::unsetenv("NO_COLOR");
  EXPECT_EQ(terminal.Screen(), "[rank 0] a\r\n");
}

TEST(OutputPrefixer, NeverBreaksALineIntoAnother) {
  Pipe out = MakePipe(O_NONBLOCK);  // full at times: EAGAIN on the way
  OutputPrefixer::Options options;
  options.stdout_fd = options.stderr_fd = out.write.get();
  options.queue_bytes_max = size_t{1} << 30;
  std::string text;
  std::thread reader([&] { text = ReadToEnd(out.read.get()); });
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  {
    OutputPrefixer prefixer(options);
    std::vector<std::thread> writers;
    for (int t = 0; t < kThreads; ++t) {
      writers.emplace_back([&prefixer, t] {
        const std::string line(static_cast<size_t>(1000 + 3000 * t), static_cast<char>('a' + t));
        for (int i = 0; i < kLines; ++i) {
          prefixer.WriteLine(Rank(t), i % 2 == 0 ? OutputStream::kStdout : OutputStream::kStderr, line);
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    ASSERT_TRUE(prefixer.Flush(kSafety));
    EXPECT_EQ(prefixer.dropped(), 0u);
  }
  out.write.Reset();
  reader.join();
  int lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ASSERT_THAT(line, testing::StartsWith("[rank "));
    const int rank = line[6] - '0';
    ASSERT_EQ(line.substr(9), std::string(static_cast<size_t>(1000 + 3000 * rank), static_cast<char>('a' + rank)));
  }
  EXPECT_EQ(lines, kThreads * kLines);
}

TEST(OutputPrefixer, SurvivesAClosedOutput) {
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  out.read.Reset();
  {
    OutputPrefixer prefixer(To(out, err));
    prefixer.WriteLine(Rank(0), OutputStream::kStdout, "into the void");
    ASSERT_TRUE(prefixer.Flush(kSafety));
    prefixer.WriteLine(Rank(0), OutputStream::kStdout, "again");
    prefixer.WriteLine(Rank(0), OutputStream::kStderr, "heard");
    ASSERT_TRUE(prefixer.Flush(kSafety));
    EXPECT_EQ(prefixer.dropped(), 2u);
  }
  err.write.Reset();
  EXPECT_EQ(ReadToEnd(err.read.get()), "[rank 0] heard\n");
}

TEST(OutputPrefixer, DropsTheOldestAndSaysSoWhenNobodyReads) {
  Pipe out = MakePipe();
  OutputPrefixer::Options options;
  options.stdout_fd = options.stderr_fd = out.write.get();
  options.queue_bytes_max = 1 << 16;
  std::string text;
  {
    OutputPrefixer prefixer(options);
    const std::string line(1000, 'x');
    for (int i = 0; i < 1000; ++i) prefixer.WriteLine(Rank(0), OutputStream::kStdout, line);
    prefixer.WriteLine(Rank(0), OutputStream::kStdout, "newest");
    EXPECT_GT(prefixer.dropped(), 0u);
    std::thread reader([&] { text = ReadToEnd(out.read.get()); });
    EXPECT_TRUE(prefixer.Flush(kSafety));
    out.write.Reset();
    reader.join();
  }
  EXPECT_THAT(text, HasSubstr("lines of output dropped"));
  EXPECT_THAT(text, testing::EndsWith("[rank 0] newest\n"));
}

TEST(OutputPrefixer, GivesUpOnAnOutputThatNobodyReads) {
  Pipe out = MakePipe();
  OutputPrefixer::Options options;
  options.stdout_fd = options.stderr_fd = out.write.get();
  {
    OutputPrefixer prefixer(options);
    for (int i = 0; i < 100; ++i) prefixer.WriteLine(Rank(0), OutputStream::kStdout, std::string(10000, 'x'));
  }  // returns although the pipe stays full
  SUCCEED();
}

}  // namespace
}  // namespace kintsugi
