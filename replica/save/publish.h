// Publish: makes a complete checkpoint visible, in this order: the manifest is written and synced, the folder renamed
// into place, `latest` moved, old checkpoints removed. A crash at any point leaves the old state or the new one, never
// a torn checkpoint under a name that is read.
//
// Threads: one rank publishes, after every writer's WritePart returned ok.
// Errors: kFailedPrecondition names what is missing; kCancelled when a newer generation of the job has published
// this step or a later one; the rest as FileSystem says. Until the folder is renamed an error leaves the unfinished
// folder as it was.
// Idempotent: publishing what is published already is ok and moves `latest` if that had not happened.
#pragma once

#include <string>
#include <vector>

#include "replica/save/file_system.h"
#include "replica/save/find.h"
#include "replica/save/retention.h"

namespace kintsugi::checkpoint {

struct PublishRequest {
  std::string root;
  std::string job;  // as in the writers' requests
  Step step;
  Generation generation;
  // Ranks whose parts must be there. May be empty: the parts say by themselves whether anything is missing.
  std::vector<Rank> expected_writers;
  // Older checkpoints are removed, except what it keeps and what `latest` names.
  Retention keep;
  // False for ranks that save without a quorum: the folder becomes visible, `latest` and older checkpoints stay.
  bool moves_latest = true;
  std::vector<std::string> side_files;  // paths, on the publisher's disk: copied into the folder (side_files.h)
};

struct PublishedSave {
  CheckpointInfo info;
  std::vector<std::string> removed;   // paths
  std::vector<std::string> warnings;  // old checkpoints that could not be removed, and why
  // Parameters that lack a state which others have (missing_states.h); of what was published before, none are looked
  // for.
  std::vector<std::string> missing_states;
  std::vector<std::string> same_names;  // tensors that are two under one name (same_names.h)
  std::vector<std::string> left_out;    // side files: which, and why
};

KINTSUGI_EXPORT Result<PublishedSave> Publish(const PublishRequest& request, FileSystem& files = PosixFileSystem());

}  // namespace kintsugi::checkpoint
