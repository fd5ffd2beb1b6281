// certify.html: the certificate on one self-contained page, in the style of the reports: what the picture of coverage
// shows, a table of every fault, and for each that failed what differs and the command that repeats it.
//
// Threads: pure function.
// Errors: none; strings that came from outside are escaped and cut to a bound.
#pragma once

#include <string>

#include "tools/certify/certificate.h"

namespace kintsugi {

std::string CertificateHtml(const Certificate& certificate);

}  // namespace kintsugi
