#include "runtime/journal/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/unique_fd.h"

namespace kintsugi::journal {

Result<std::unique_ptr<JournalReader>> JournalReader::Open(const std::string& path) {
  const auto failed = [&] {
    const StatusCode code = errno == ENOENT || errno == ENOTDIR ? StatusCode::kNotFound : StatusCode::kPermissionDenied;
    return Status(code, "cannot read the journal '" + path + "': " + std::strerror(errno));
  };
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found {};
  if (!fd.valid() || fstat(fd.get(), &found) != 0) return failed();
  if (!S_ISREG(found.st_mode)) return Status(StatusCode::kInvalidArgument, "'" + path + "' is no file");
  std::string bytes(static_cast<size_t>(found.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = read(fd.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed();
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return Of(std::move(bytes), path);
}

Result<std::unique_ptr<JournalReader>> JournalReader::Of(std::string bytes, const std::string& name) {
  std::unique_ptr<JournalReader> reader(new JournalReader);
  reader->bytes_ = std::move(bytes);
  reader->name_ = name;
  Result<FrameReader> frames = FrameReader::Open(reader->bytes_);
  if (!frames.ok()) return reader->Where(frames.status());
  reader->frames_ = std::move(frames).value();
  std::string_view payload;
  const Result<FrameReader::Next> next = reader->frames_->Read(&payload);
  if (!next.ok()) return reader->Where(next.status());
  if (*next != FrameReader::Next::kFrame)
    return reader->Where({StatusCode::kInvalidArgument, "it ends before its first record is whole"});
  Result<Preamble> preamble = reader->decoder_.Begin(payload);
  if (!preamble.ok()) return reader->Where(preamble.status());
  reader->preamble_ = std::move(preamble).value();
  return reader;
}

Status JournalReader::Where(const Status& status) const { return status.Annotate("journal '" + name_ + "'"); }

Result<bool> JournalReader::Next(std::vector<Input>* inputs) {
  inputs->clear();
  if (end_ || torn_) return false;
  std::string_view payload;
  const Result<FrameReader::Next> next = frames_->Read(&payload);
  if (!next.ok()) return Where(next.status());
  if (*next == FrameReader::Next::kTorn) torn_ = true;
  if (*next != FrameReader::Next::kFrame) return false;
  const Status decoded = decoder_.Decode(payload, inputs, &end_);
  if (!decoded.ok()) return Where(decoded.Annotate("record " + std::to_string(record())));
  if (end_ && frames_->bytes_left() > 0)
    return Where({StatusCode::kDataLoss, std::to_string(frames_->bytes_left()) + " bytes after the last record"});
  return !end_;
}

}  // namespace kintsugi::journal
