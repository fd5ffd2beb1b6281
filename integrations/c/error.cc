// Errors, names and versions.
#include <new>

#include "integrations/c/handle.h"

namespace kintsugi::c {
namespace {

constexpr bool Same(kintsugi_code c, StatusCode code) { return static_cast<int>(c) == static_cast<int>(code); }
static_assert(Same(KINTSUGI_OK, StatusCode::kOk) && Same(KINTSUGI_INTERRUPTED, StatusCode::kInterrupted) &&
              Same(KINTSUGI_COMM_FAILURE, StatusCode::kCommFailure) &&
              Same(KINTSUGI_DEADLINE_EXCEEDED, StatusCode::kDeadlineExceeded) &&
              Same(KINTSUGI_UNAVAILABLE, StatusCode::kUnavailable) &&
              Same(KINTSUGI_INVALID_ARGUMENT, StatusCode::kInvalidArgument) &&
              Same(KINTSUGI_FAILED_PRECONDITION, StatusCode::kFailedPrecondition) &&
              Same(KINTSUGI_NOT_FOUND, StatusCode::kNotFound) && Same(KINTSUGI_DATA_LOSS, StatusCode::kDataLoss) &&
              Same(KINTSUGI_RESOURCE_EXHAUSTED, StatusCode::kResourceExhausted) &&
              Same(KINTSUGI_PERMISSION_DENIED, StatusCode::kPermissionDenied) &&
              Same(KINTSUGI_CANCELLED, StatusCode::kCancelled) && Same(KINTSUGI_ENDED, StatusCode::kEnded) &&
              Same(KINTSUGI_INTERNAL, StatusCode::kInternal));

}  // namespace

kintsugi_code Answer(const Status& status, kintsugi_error** error) {
  if (error) *error = nullptr;
  if (status.ok()) return KINTSUGI_OK;
  if (error) {
    try {
      *error = new kintsugi_error{CodeOf(status), status.message()};
    } catch (const std::bad_alloc&) {  // the code alone must do
    }
  }
  return CodeOf(status);
}

Status ForkedStatus() {
  return {StatusCode::kFailedPrecondition, "this process was forked from a rank and is none itself"};
}

}  // namespace kintsugi::c

const char* kintsugi_error_text(const kintsugi_error* error) { return error ? error->text.c_str() : ""; }
kintsugi_code kintsugi_error_code(const kintsugi_error* error) { return error ? error->code : KINTSUGI_OK; }
void kintsugi_error_free(kintsugi_error* error) { delete error; }

const char* kintsugi_code_name(kintsugi_code code) {
  switch (code) {
    case KINTSUGI_PAUSED:
      return "PAUSED";
    case KINTSUGI_THROW:
      return "THROW";
    case KINTSUGI_FLIP:
      return "FLIP";
    default:
      return kintsugi::StatusCodeName(static_cast<kintsugi::StatusCode>(code)).data();
  }
}

uint32_t kintsugi_abi_version(void) { return KINTSUGI_ABI_VERSION; }
