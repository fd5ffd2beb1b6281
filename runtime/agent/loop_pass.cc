#include "runtime/agent/loop_pass.h"

#include "runtime/base/check.h"

namespace kintsugi {

void LoopPass::Begin() {
  KINTSUGI_CHECK(ever_released_, "a loop is entered by a release");
  resumed_told_ = false;
  begun_ = Step();
  thread_ = 0;
}

Status LoopPass::OnSecondThread(const char* where) {
  return {StatusCode::kFailedPrecondition,
          std::string(where) + " on a second thread: the loop and its marks belong to one thread"};
}

}  // namespace kintsugi
