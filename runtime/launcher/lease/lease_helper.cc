#include "runtime/launcher/lease/lease_helper.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "runtime/launcher/lease/owner_file.h"
#include "runtime/process/child_setup.h"

namespace kintsugi {
namespace {

constexpr int kSocket = 3;
constexpr Duration kLookEvery = std::chrono::milliseconds(500);

void Say(char what, const std::string& text) {
  const std::string message = what + text;
  (void)send(kSocket, message.data(), message.size(), MSG_NOSIGNAL);
}

// What the launcher says within that time; 0: nothing; kLeaseOver: it is gone.
char Hear(Duration limit) {
  pollfd ready{kSocket, POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(limit / std::chrono::milliseconds(1))) <= 0) return 0;
  char what = 0;
  return recv(kSocket, &what, 1, 0) == 1 ? what : kLeaseOver;
}

// One that may be gone is waited for until it shows, or until its time is over.
bool Take(OwnerFile& file) {
  int64_t touched = 0;
  for (;;) {
    const Result<OwnerFile::Answer> answer = file.TryTake();
    if (!answer.ok()) return Say(kLeaseUnavailable, answer.status().message()), false;
    if (answer->claim == OwnerFile::Claim::kMine) return true;
    if (answer->claim == OwnerFile::Claim::kAnothers || (touched != 0 && touched != answer->touched))
      return Say(kLeaseRefused, answer->whose), false;
    if (touched == 0) Say(kLeaseWaits, answer->whose);
    touched = answer->touched;
    if (Hear(kLookEvery) != 0) return false;
  }
}

}  // namespace

void LeaseHelperMain(int socket, const std::string& root, const std::string& owner, int pid, bool takes) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_NAME, "kintsugi-owner");
  const int wanted[kSocket + 1] = {-1, -1, -1, socket};
  int scratch[kSocket + 1];
  if (!RenumberDescriptors(wanted, scratch, kSocket + 1, false)) _exit(1);
  OwnerFile file(root, owner, pid);
  if (takes) {
    if (!Take(file)) _exit(0);
    file.ClearAway();
  }
  Say(kLeaseTaken, "");
  std::string told;
  for (char heard = 0; heard != kLeaseOver; heard = Hear(OwnerFile::kTouchEvery)) {
    if (heard == kLeaseGiveBack) {
      file.GiveBack();
      Say(kLeaseOver, "");
      _exit(0);
    }
    const Result<OwnerFile::Answer> answer = file.Touch();
    const std::string trouble =
        !answer.ok() ? answer.status().message()
        : answer->claim == OwnerFile::Claim::kMine
            ? ""
            : "it was taken by " + answer->whose + ", after half a minute without a sign of this run";
    if (trouble != told && !trouble.empty()) Say(kLeaseLost, trouble);
    told = trouble;
  }
  _exit(0);
}

}  // namespace kintsugi
