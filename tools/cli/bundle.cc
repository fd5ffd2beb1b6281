// kintsugi bundle: what somebody who is to help with a run needs to see, in one file.
#include <chrono>
#include <filesystem>
#include <iostream>

#include "runtime/journal/files.h"
#include "runtime/journal/options.h"
#include "runtime/process/stack_dump.h"
#include "tools/cli/common.h"
#include "tools/cli/run_choice.h"
#include "tools/cli/talk_request.h"
#include "tools/cli/tar.h"
#include "tools/cli/version.h"
#include "tools/doctor/gather.h"
#include "tools/runs/run_folder.h"

namespace kintsugi::cli {
namespace {

namespace fs = std::filesystem;

constexpr Duration kAnswerWithin = std::chrono::seconds(5);
constexpr uint64_t kLogBytesMax = uint64_t{64} << 20;  // of each log: its end
constexpr uint64_t kJournalBytesMax = uint64_t{1} << 30;
constexpr const char* kWhatItIs =
    "A run of Kintsugi, gathered by `kintsugi bundle`.\n"
    "\n"
    "version.txt   of the program that gathered it\n"
    "doctor.json   what kintsugi doctor says of this host\n"
    "status.json, incidents.json   what the run answered, where it lives\n"
    "run/          its folder: run.json, the journal (kintsugi replay --journal), stacks of ranks that were killed\n"
    "report/       of --report: summary.json, record.json, trace.json, the journal\n"
    "logs/         the ends of the files of --log\n"
    "missing.txt   what could not be had, and why\n"
    "\n"
    "Left out: secrets, keys and tokens (none is read), the environment, checkpoints. The journal has what ranks put "
    "into the\n"
    "run's store, and logs what the program printed: look at them before they leave the house.\n";

struct BundleOptions {
  std::string run_dir, report, output;
  std::vector<std::string> logs;
};

class Bundle {
 public:
  explicit Bundle(const BundleOptions& options) : options_(options) {}

  Status Make(const std::string& path) {
    KINTSUGI_RETURN_IF_ERROR(tar_.Open(path));
    KINTSUGI_RETURN_IF_ERROR(tar_.Add("README.txt", kWhatItIs));
    KINTSUGI_RETURN_IF_ERROR(tar_.Add("version.txt", VersionText() + "\n"));
    KINTSUGI_RETURN_IF_ERROR(
        tar_.Add("doctor.json", Text(doctor::FindingsJson(doctor::CheckHost(doctor::Gather({}), {})))));
    if (!options_.run_dir.empty()) KINTSUGI_RETURN_IF_ERROR(AddRun());
    if (!options_.report.empty())
      for (const std::string& file : FilesOfReport())
        KINTSUGI_RETURN_IF_ERROR(AddFile("report/" + NameOf(file), file, kJournalBytesMax));
    for (size_t i = 0; i < options_.logs.size(); ++i)
      KINTSUGI_RETURN_IF_ERROR(
          AddFile("logs/" + std::to_string(i + 1) + "-" + NameOf(options_.logs[i]), options_.logs[i], kLogBytesMax));
    if (!missing_.empty()) KINTSUGI_RETURN_IF_ERROR(tar_.Add("missing.txt", missing_));
    return tar_.Close();
  }

  const std::string& missing() const { return missing_; }

 private:
  static std::string Text(const nlohmann::ordered_json& value) {
    return value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  // As it can stand in an archive.
  static std::string NameOf(const std::string& file) {
    const std::string name = fs::path(file).filename().string();
    return name.substr(0, std::min<size_t>(name.size(), 60));
  }

  std::vector<std::string> FilesOfReport() const {
    std::vector<std::string> files;
    for (const char* name : {"summary.json", "record.json", "trace.json"})
      files.push_back(options_.report + "/" + name);
    std::vector<std::string> journals = journal::FilesIn(options_.report);
    if (journals.empty()) journals.push_back(options_.report + "/" + journal::kFileName);  // told as missing
    files.insert(files.end(), journals.begin(), journals.end());
    return files;
  }

  Status AddRun() {
    for (const auto& [command, name] : {std::pair{"status", "status.json"}, {"incidents", "incidents.json"}}) {
      const RunAnswer answer = Ask(options_.run_dir, {{"command", command}}, kAnswerWithin);
      if (answer.said)
        KINTSUGI_RETURN_IF_ERROR(tar_.Add(name, Text(nlohmann::ordered_json(*answer.said))));
      else
        Miss(name, answer.trouble);
    }
    // What lists say of it may lie in a folder of ours beside it.
    std::vector<std::string> folders{options_.run_dir};
    for (const runs::FoundRun& run : runs::FindRuns(runs::RunBases()))
      if (run.run_dir == options_.run_dir && run.folder != options_.run_dir) folders.push_back(run.folder);
    std::error_code error;
    for (const std::string& folder : folders)
      for (const auto& entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        if (journal::TermOfName(name) > 0 || name == runs::kDescriptionName || name.starts_with(kStacksFilePrefix))
          KINTSUGI_RETURN_IF_ERROR(AddFile("run/" + NameOf(name), entry.path().string(), kJournalBytesMax));
      }
    if (error) Miss("run/", {StatusCode::kUnavailable, "'" + options_.run_dir + "': " + error.message()});
    return Status::Ok();
  }

  // One that is not there is told in the archive; a disk that takes no more ends it.
  Status AddFile(const std::string& name, const std::string& file, uint64_t bytes_max) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) {
      Miss(name, {StatusCode::kNotFound, "'" + file + "' is no file"});
      return Status::Ok();
    }
    return tar_.AddFile(name, file, bytes_max);
  }

  void Miss(const std::string& name, const Status& why) { missing_ += name + ": " + why.message() + "\n"; }

  const BundleOptions& options_;
  TarFile tar_;
  std::string missing_;
};

int MakeBundle(BundleOptions options) {
  int exit_code = core::kExitSuccess;
  if (options.run_dir.empty() && options.report.empty() && options.logs.empty() &&
      !ChooseRun(&options.run_dir, exit_code))
    return exit_code;
  if (options.output.empty()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    options.output =
        "kintsugi-bundle-" + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count()) + ".tar";
  }
  Bundle bundle(options);
  if (const Status made = bundle.Make(options.output); !made.ok()) {
    Complain(made.message());
    return core::kExitFailed;
  }
  if (!bundle.missing().empty()) Complain("not in it:\n" + bundle.missing());
  std::cout << options.output << std::endl;
  return core::kExitSuccess;
}

}  // namespace

void AddBundle(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BundleOptions>();
  CLI::App* command = app.add_subcommand("bundle", "Gather what somebody needs who is to help with a run, in one file");
  command->add_option("--run", options->run_dir,
                      "The run's folder, also of one that is over; default: the only live one");
  command->add_option("--report", options->report, "The folder of its --report");
  command
      ->add_option("--log", options->logs,
                   "Its log, or what its ranks printed (--log-file, --output-dir/rank-0.log); repeatable")
      ->take_all();
  command->add_option("--output", options->output, "The file to make; default: kintsugi-bundle-TIME.tar here");
  command->footer(
      "Journal, stacks, status, incidents, report, logs, versions, and what kintsugi doctor says of this host. No "
      "secret,\n"
      "key, token, environment or checkpoint is read. The archive is readable by its owner alone; README.txt in it "
      "says\n"
      "what is there. Exit codes: 0 made, 1 it could not be, or there is no such run, 2 wrong usage.\n\n"
      "Example: kintsugi bundle --run DIR --log run.log");
  command->callback([options, &exit_code] { exit_code = MakeBundle(*options); });
}

}  // namespace kintsugi::cli
