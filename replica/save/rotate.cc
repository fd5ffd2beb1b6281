#include "replica/save/rotate.h"

#include "replica/save/names.h"

namespace kintsugi::checkpoint {
namespace {

void RemoveOne(const std::string& path, FileSystem& files, PublishedSave* published) {
  if (const Status removed = files.Remove(path); removed.ok())
    published->removed.push_back(path);
  else
    published->warnings.push_back(removed.ToString());
}

// A checkpoint goes manifest first, so that what a crash leaves of it is not taken for a whole one.
void RemoveCheckpoint(const std::string& path, FileSystem& files, PublishedSave* published) {
  const Status hidden = files.Remove(Join(path, kManifestName));
  const Status synced = hidden.ok() ? files.SyncFolder(path) : hidden;
  if (synced.ok() || synced.code() == StatusCode::kNotFound)
    RemoveOne(path, files, published);
  else
    published->warnings.push_back(synced.ToString());
}

}  // namespace

void Rotate(const std::string& root, const std::string& job, Step step, Generation generation, const Retention& keep,
            FileSystem& files, PublishedSave* published) {
  const auto names = files.List(root);
  if (!names.ok()) {
    published->warnings.push_back(names.status().ToString());
    return;
  }
  for (const std::string& name : *names) {
    const auto attempt = UnfinishedOfFolder(name);
    const bool aside = name.starts_with(std::string(kLatestName) + ".tmp-");
    const bool ours = attempt && attempt->job_tag == TagOfJob(job);
    if (aside || (ours && (attempt->step < step || (attempt->step == step && attempt->generation <= generation))))
      RemoveOne(Join(root, name), files, published);
  }
  const auto steps = ListSteps(root, files);
  if (!steps.ok()) return;
  const auto latest = ReadLatest(root, files);
  int complete = 0;
  for (Step old : *steps) {
    if (old > step) continue;
    const std::string path = Join(root, FolderName(old));
    if (complete < keep.count()) {
      complete += Inspect(path, files).ok();
      continue;
    }
    const bool named = old == step || (latest.ok() && *latest == old);
    if (!named && !keep.KeepsForGood(old)) RemoveCheckpoint(path, files, published);
  }
}

}  // namespace kintsugi::checkpoint
