// Records like those of a real run, for the tests and for looking at the page.
#pragma once

#include "tools/report/record.h"

namespace kintsugi {

// Four ranks, 80 steps, nothing went wrong.
RunRecord UndisturbedRun();

// The same run, broken twice: rank 2 killed in step 41 during update (respawn); rank 0 threw in step 63 and rank 3, a
// source, was killed while it sent (three attempts).
RunRecord FaultedRun();

// The same, but rank 2 is not replaced: it leaves in incident 1, and comes back at the end; who saw that is not known.
RunRecord ElasticRun();

}  // namespace kintsugi
