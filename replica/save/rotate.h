// Rotate: removes checkpoints that newer ones have made superfluous, and attempts that nobody finishes any more.
#pragma once

#include <string>

#include "replica/save/publish.h"

namespace kintsugi::checkpoint {

// Called when `step` has just been published in `generation`. The newest complete checkpoints up to `step` stay, as many
// as `keep` says, those that it keeps for good, and always the one that `latest` names; higher steps (of an abandoned
// run) are left alone. An older folder that is not complete is removed too, once enough complete ones stand. Failures
// become warnings: the new checkpoint is safe. Attempts of other jobs are theirs; the next owner of the root removes them.
void Rotate(const std::string& root, const std::string& job, Step step, Generation generation, const Retention& keep,
            FileSystem& files, PublishedSave* published);

}  // namespace kintsugi::checkpoint
