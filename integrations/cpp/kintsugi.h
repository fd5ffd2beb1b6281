// kintsugi::Join: an agent with the working default handlers for repair, save and rename installed.
//
// A trainer then writes only stop, clean and rebuild_group, or lets GlooWorld do even these, and rollback where something
// follows from the state. See runtime/agent.h for the rest of the API and replica/stream/gloo_group.h for abortable
// collectives.
#pragma once

#include <memory>

#include "callbacks/state/experts.h"
#include "callbacks/state/values.h"
#include "integrations/cpp/gloo_world.h"
#include "replica/links/replica_options.h"
#include "replica/stream/gloo_group.h"
#include "runtime/agent.h"

namespace kintsugi {

// `replica`: how the default handlers move state.
// Errors: as Agent::Join.
KINTSUGI_EXPORT Result<std::unique_ptr<Agent>> Join(const AgentOptions& options,
                                                    std::shared_ptr<LogSink> log = NullLogSink(),
                                                    const ReplicaOptions& replica = {});

}  // namespace kintsugi
