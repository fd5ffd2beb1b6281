// RunGuarded: an event loop that no exception of a handler ends unseen. The one place where what a handler throws is
// caught: a program that lets it through is aborted, and its run with it.
//
// A handler that throws (a library's edge that was overlooked) loses its own work and nothing else: it is logged, and
// the loop goes on. A failed check means that what is decided here cannot be relied on any more, and so do handlers
// that throw again and again: then the loop ends, and the caller ends its run in order.
// Threads: the caller's.
// Errors: kInternal, with what was thrown; else the loop has run out of work or was stopped.
#pragma once

#include "runtime/base/export.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace boost::asio {
class io_context;
}

namespace kintsugi::net {

// So many handlers may throw in the life of a loop.
inline constexpr int kHandlersThrownMax = 100;

KINTSUGI_EXPORT Status RunGuarded(boost::asio::io_context& io, LogSink& log);

}  // namespace kintsugi::net
