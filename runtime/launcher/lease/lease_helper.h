// The helper process of a SaveLease: what it does, and what the two say to each other.
//
// Each message is a letter and a text.
// Threads: LeaseHelperMain is all that its process does.
#pragma once

#include <string>

namespace kintsugi {

// From the helper.
inline constexpr char kLeaseTaken = 'T';
inline constexpr char kLeaseRefused = 'R';      // why: the directory is another's
inline constexpr char kLeaseUnavailable = 'U';  // why
inline constexpr char kLeaseWaits = 'W';        // for whom
inline constexpr char kLeaseLost = 'L';         // why
inline constexpr char kLeaseOver = 'D';         // given back
// To it. When the socket is closed without a word, it ends and leaves the file as it is.
inline constexpr char kLeaseGiveBack = 'G';

// `pid`: the launcher's, which stands in the file. `takes`: else what a leader of the same run had is gone on with.
[[noreturn]] void LeaseHelperMain(int socket, const std::string& root, const std::string& owner, int pid, bool takes);

}  // namespace kintsugi
