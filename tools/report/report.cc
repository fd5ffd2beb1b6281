#include "tools/report/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/write_all.h"
#include "tools/report/page.h"
#include "tools/report/record_json.h"

namespace kintsugi {
namespace {

namespace fs = std::filesystem;

Status FileError(const char* action, const fs::path& path, int error) {
  const std::string message =
      std::string("cannot ") + action + " " + path.string() + ": " + std::generic_category().message(error) + "; ";
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return {StatusCode::kPermissionDenied, message + "give --report a folder this user may write to"};
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return {StatusCode::kResourceExhausted, message + "free some space or give --report a folder on another disk"};
    case ENOTDIR:
    case EEXIST:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return {StatusCode::kInvalidArgument, message + "give --report the path of a folder, new or existing"};
    default:
      return {StatusCode::kUnavailable, message + "look at the file system, then make the report again"};
  }
}

// A file beside its final place. Removed again unless it was published.
class AsideFile {
 public:
  explicit AsideFile(fs::path target) : target_(std::move(target)) {
    aside_ = target_;
    aside_.replace_filename("." + target_.filename().string() + "." + std::to_string(::getpid()) + ".part");
  }
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;
  AsideFile(AsideFile&& other) noexcept
      : target_(std::move(other.target_)),
        aside_(std::move(other.aside_)),
        exists_(std::exchange(other.exists_, false)) {}
  ~AsideFile() {
    if (exists_) ::unlink(aside_.c_str());
  }

  Status Write(std::string_view text) {
    const int fd = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return FileError("write", target_, errno);
    exists_ = true;
    int error = WriteAll(fd, text);
    if (::close(fd) != 0 && error == 0) error = errno;
    return error == 0 ? Status::Ok() : FileError("write", target_, error);
  }

  Status Publish() {
    if (::rename(aside_.c_str(), target_.c_str()) != 0) return FileError("replace", target_, errno);
    exists_ = false;
    return Status::Ok();
  }

 private:
  fs::path target_;
  fs::path aside_;
  bool exists_ = false;
};

Status MakeFolder(const fs::path& folder) {
  if (folder.empty()) return {StatusCode::kInvalidArgument, "the report folder has no name; give --report a path"};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return FileError("create the report folder", folder, error.value());
  if (!fs::is_directory(folder, error)) return FileError("use as the report folder", folder, ENOTDIR);
  return Status::Ok();
}

using NamedText = std::pair<const char*, std::string>;

Status Publish(const fs::path& folder, const std::vector<NamedText>& texts) {
  std::vector<AsideFile> files;
  files.reserve(texts.size());
  for (const auto& [name, text] : texts) {
    KINTSUGI_RETURN_IF_ERROR(files.emplace_back(folder / name).Write(text));
  }
  for (AsideFile& file : files) KINTSUGI_RETURN_IF_ERROR(file.Publish());
  return Status::Ok();
}

// The summary is read by people too; the records are long and read by RebuildReport.
std::string Lines(const nlohmann::ordered_json& json) { return json.dump(1) + "\n"; }
std::string Compact(const nlohmann::ordered_json& json) { return json.dump() + "\n"; }

}  // namespace

Status CheckReportFolder(const fs::path& folder) {
  KINTSUGI_RETURN_IF_ERROR(MakeFolder(folder));
  return AsideFile(folder / "index.html").Write("");
}

Status WriteReport(const fs::path& folder, const RunRecord& faulted, const RunRecord* reference,
                   const ReportOptions& options) {
  KINTSUGI_RETURN_IF_ERROR(MakeFolder(folder));
  std::vector<NamedText> texts;
  texts.emplace_back("summary.json", Lines(SummaryJson(faulted)));
  texts.emplace_back("trace.json", TraceJson(faulted, options.trace));
  texts.emplace_back("record.json", Compact(RecordJson(faulted)));
  if (reference != nullptr) texts.emplace_back("reference.json", Compact(RecordJson(*reference)));
  texts.emplace_back("index.html", IndexHtml(faulted, reference, options));
  KINTSUGI_RETURN_IF_ERROR(Publish(folder, texts));
  if (reference != nullptr) return Status::Ok();
  // What an earlier run left must not be taken for this run's reference.
  std::error_code error;
  fs::remove(folder / "reference.json", error);
  return error ? FileError("remove", folder / "reference.json", error.value()) : Status::Ok();
}

Status RebuildReport(const fs::path& folder, const ReportOptions& options) {
  KINTSUGI_ASSIGN_OR_RETURN(const RunRecord record, ReadRecord(folder / "record.json"));
  const fs::path beside = folder / "reference.json";
  std::error_code error;
  if (!fs::exists(beside, error)) return WriteReport(folder, record, nullptr, options);
  KINTSUGI_ASSIGN_OR_RETURN(const RunRecord reference, ReadRecord(beside));
  return WriteReport(folder, record, &reference, options);
}

}  // namespace kintsugi
