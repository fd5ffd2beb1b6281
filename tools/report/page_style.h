// The page's style sheet: one place for colours, in a light and a dark scheme, and for the layout at desktop and phone
// width.
#pragma once

#include <string>

namespace kintsugi {

std::string PageStyle();

}  // namespace kintsugi
