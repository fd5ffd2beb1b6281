// kintsugi::Join: an agent with the working default handlers for repair, save and rename installed.
//
// A trainer then writes only stop, clean and rebuild_group, or lets GlooWorld do even these, and rollback where something
// follows from the state. See runtime/agent.h for the rest of the API and replica/stream/gloo_group.h for abortable
// collectives.
#pragma once

#include <memory>

#include "callbacks/state/descriptors.h"
#include "callbacks/state/experts.h"
#include "callbacks/state/values.h"
#include "integrations/cpp/gloo_world.h"
#include "integrations/cpp/reshard.h"
#include "replica/aoa/user_macro.h"
#include "replica/links/replica_options.h"
#include "replica/stream/gloo_group.h"
#include "runtime/agent.h"

namespace kintsugi {

// `replica`: how the default handlers move state. `macros`: words that the AOA programs of --resume-aoa and --save-aoa may
// use beside those of the language.
// Errors: as Agent::Join.
KINTSUGI_EXPORT Result<std::unique_ptr<Agent>> Join(const AgentOptions& options,
                                                    std::shared_ptr<LogSink> log = NullLogSink(),
                                                    const ReplicaOptions& replica = {},
                                                    const aoa::UserMacros& macros = {});

// Registers what the factory builds of its tensor, in the tensor's place: an array that is stored as several tensors
// (gate and up of a fused projection), each under its own name and box. What is held, repaired and streamed is the
// array's own memory, so `merge` is not called. One for each state of the optimizer: StateFactory
// (replica/layout/factory.h).
// Errors: kInvalidArgument where the parts are not the tensor, each byte once (nothing is registered), or what
// RegisterTensor says of a part (those before it stay).
KINTSUGI_EXPORT Status RegisterFactory(Agent& agent, const ShardedTensorFactory& factory);

}  // namespace kintsugi
