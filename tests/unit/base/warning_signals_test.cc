// Which signals an operator may name as warnings, and how.
#include "runtime/base/warning_signals.h"

#include <gtest/gtest.h>

namespace kintsugi {
namespace {

using Numbers = std::vector<int>;

TEST(WarningSignals, AreNamedAsUsersNameThem) {
  EXPECT_EQ(ParseSignals("").value(), Numbers());
  EXPECT_EQ(ParseSignals("ALRM").value(), Numbers{SIGALRM});
  EXPECT_EQ(ParseSignals("SIGQUIT,RTMIN+3,SIGRTMIN,RTMAX-1,RTMAX").value(),
            (Numbers{SIGQUIT, SIGRTMIN + 3, SIGRTMIN, SIGRTMAX - 1, SIGRTMAX}));
  EXPECT_EQ(ParseSignals("ALRM,USR1,SIGALRM").value(), (Numbers{SIGALRM, SIGUSR1})) << "each once";
}

TEST(WarningSignals, RefuseTheRestByNameAndSayWhatIsKnown) {
  for (const char* word : {"KILL", "STOP", "SEGV", "CHLD", "PIPE", "XFSZ", "WINCH", "alrm", "14", "RTMIN-1", "RTMAX+1", "RTMIN+99",
                           "RTMIN+", "RTMIN+x", "RTMIN3", "SIG", " ALRM", "RTMIN+-1"}) {
    const Status refused = ParseSignals(std::string("USR1,") + word).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << word;
    for (const std::string& part : {"'" + std::string(word) + "'", std::string("ALRM, HUP"), std::string("RTMIN+30")})
      EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  }
  for (const char* list : {",", "ALRM,", ",ALRM", "ALRM,,USR1"})
    EXPECT_EQ(ParseSignals(list).status().code(), StatusCode::kInvalidArgument) << list;
}

}  // namespace
}  // namespace kintsugi
