#include <cerrno>
#include <cstring>
#include <system_error>

#include "replica/save/file_system.h"

namespace kintsugi::checkpoint {
namespace {

struct Meaning {
  StatusCode code;
  const char* remedy;
};

Meaning MeaningOf(int error) {
  switch (error) {
    case ENOSPC:
      return {StatusCode::kResourceExhausted, "free space on this disk or save to another folder"};
    case EDQUOT:
      return {StatusCode::kResourceExhausted, "the quota is used up: free space or save to another folder"};
    case EFBIG:
      return {StatusCode::kResourceExhausted, "the file size limit is too small: raise it (ulimit -f)"};
    case EMFILE:
    case ENFILE:
      return {StatusCode::kResourceExhausted, "too many open files: raise the limit (ulimit -n)"};
    case ENOMEM:
      return {StatusCode::kResourceExhausted, "memory ran out: free some"};
    case EACCES:
    case EPERM:
      return {StatusCode::kPermissionDenied, "give this user the right to it or use another folder"};
    case EROFS:
      return {StatusCode::kPermissionDenied, "the disk is read-only: remount it or use another folder"};
    case ENOENT:
      return {StatusCode::kNotFound, "it does not exist (or no longer does)"};
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
      return {StatusCode::kInvalidArgument, "check the path"};
    case EIO:
      return {StatusCode::kDataLoss, "the device failed: use another disk"};
    default:
      return {StatusCode::kUnavailable, "retry, or use another folder"};
  }
}

}  // namespace

Status FileError(int error, const std::string& operation, const std::string& path, uint64_t bytes_needed) {
  const Meaning meaning = MeaningOf(error);
  std::string text = operation + " '" + path + "'";
  if (bytes_needed > 0) text += " (" + std::to_string(bytes_needed) + " bytes needed)";
  return {meaning.code, text + ": " + std::system_category().message(error) + ": " + meaning.remedy};
}

Result<std::string> ReadSmallFile(FileSystem& files, const std::string& path, uint64_t size_bytes_max) {
  KINTSUGI_ASSIGN_OR_RETURN(const auto file, files.Open(path));
  if (file->size_bytes() > size_bytes_max)
    return Status(StatusCode::kDataLoss, "'" + path + "' has " + std::to_string(file->size_bytes()) +
                                             " bytes; such a file has at most " + std::to_string(size_bytes_max));
  std::string text(file->size_bytes(), '\0');
  KINTSUGI_RETURN_IF_ERROR(file->Read(0, text.data(), text.size()));
  return text;
}

Status WriteSmallFile(FileSystem& files, const std::string& path, const std::string& text) {
  KINTSUGI_ASSIGN_OR_RETURN(const auto file, files.Create(path));
  const WritableFile::Piece piece(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  KINTSUGI_RETURN_IF_ERROR(file->Write(0, std::span(&piece, 1)));
  return file->Sync();
}

}  // namespace kintsugi::checkpoint
