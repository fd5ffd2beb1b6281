#include "tools/report/page_frame.h"

#include <string_view>

#include "tools/report/page_style.h"

namespace kintsugi {
namespace {

// A mended bowl, the mark of the project, and the seam that runs on from it.
constexpr std::string_view kMasthead = R"html(<div class="masthead">
<svg class="bowl" viewBox="0 0 48 40" aria-hidden="true"><path class="clay" d="M3 8H45C45 24 36 33 30 34V37H18V34C12 33 3 24 3 8Z"/><path class="crack" d="M27 8L24 15L29.5 20.5L25.5 27L27.5 34M24 15L15.5 18.5L8.5 23.5M29.5 20.5L37 19L43.6 15.5"/></svg>
<span class="name">Kintsugi</span>
<svg class="vein" viewBox="0 0 1000 40" preserveAspectRatio="none" aria-hidden="true"><path d="M0 22L64 18L118 25L201 15L262 21L344 17L398 26L487 19L560 23L655 14L727 21L812 18L901 24L1000 19"/><path class="thin" d="M201 15L238 4M398 26L446 37M655 14L688 3M812 18L846 33"/></svg>
</div>
)html";

}  // namespace

std::string PageHead(const std::string& title, const std::string& more_style, const std::string& more_allowed) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
         "img-src "
         "data:; base-uri 'none'; form-action 'none'" +
         (more_allowed.empty() ? "" : "; " + more_allowed) +
         "\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         title + "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n" + PageStyle() + more_style +
         "</style>\n</head>\n";
}

std::string Masthead() { return std::string(kMasthead); }

}  // namespace kintsugi
