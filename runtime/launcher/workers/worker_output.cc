#include "runtime/launcher/workers/worker_output.h"

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr std::chrono::milliseconds kFlushLimit{1000};

}  // namespace

void WorkerOutput::SetUp() {
  OutputPrefixer::Options output;
  if (options_.output_to_stderr) output.stdout_fd = 2;
  prefixer_ = options_.output ? options_.output : std::make_shared<OutputPrefixer>(output);
}

void WorkerOutput::OnBegan(const RankIncarnation& who, pid_t pid) {
  if (options_.rank_files) options_.rank_files->OnBegan(who.rank, who.incarnation, pid);
}

void WorkerOutput::OnLine(const Seat& seat, OutputStream stream, std::string_view line) {
  if (options_.rank_files && seat.who) options_.rank_files->OnLine(seat.who->rank, line);
  if (options_.rank_files && !seat.who) options_.rank_files->OnSpareLine(line);
  if (!options_.show_output) return;
  prefixer_->WriteLine(seat.who ? std::optional(seat.who->rank) : std::nullopt, stream, line);
}

void WorkerOutput::OnOutputEnd(Rank rank) {
  if (options_.rank_files) options_.rank_files->OnOutputEnd(rank);
}

void WorkerOutput::OnEnded(const RankIncarnation& who, const std::string& how) {
  if (options_.rank_files) options_.rank_files->OnEnded(who.rank, who.incarnation, how);
}

void WorkerOutput::Flush() {
  KINTSUGI_CHECK(prefixer_ != nullptr, "output of a pool that was not set up");
  prefixer_->Flush(kFlushLimit);
  if (options_.rank_files) options_.rank_files->Flush(kFlushLimit);
}

}  // namespace kintsugi
