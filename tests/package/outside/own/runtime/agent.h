// The outsider's: it has nothing to do with ours.
#pragma once

namespace outside {
inline constexpr bool kOwnAgent = true;
}  // namespace outside
