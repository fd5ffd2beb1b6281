// kintsugi report: make a report's pages anew from its record, and open them.
#include "tools/report/report.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

constexpr int kLooksMax = 20;
constexpr useconds_t kLookEveryUs = 100'000;

bool IsSet(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// Why nothing was opened; empty: it was handed to the desktop's own choice of a browser.
std::string OpenPage(const std::string& page) {
  if (!IsSet("DISPLAY") && !IsSet("WAYLAND_DISPLAY") && !IsSet("BROWSER"))
    return "there is no desktop here (DISPLAY, WAYLAND_DISPLAY and BROWSER are not set)";
  std::string program = "xdg-open", address = page;
  char* const words[] = {program.data(), address.data(), nullptr};
  pid_t child = 0;
  // What a browser says is no answer of ours: standard output is the path's.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const int error = posix_spawnp(&child, words[0], &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return "xdg-open: " + std::string(std::strerror(error)) + " (Debian: apt install xdg-utils)";
  // Some browsers are run in its stead and end when they are closed: those are not waited for.
  int status = 0;
  for (int looks = 0; waitpid(child, &status, WNOHANG) == 0; ++looks) {
    if (looks == kLooksMax) return "";
    usleep(kLookEveryUs);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return "xdg-open ended with code " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

}  // namespace

void AddReport(CLI::App& app, int& exit_code) {
  auto folder = std::make_shared<std::string>();
  auto open = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("report", "Make summary, trace and page of a report folder anew");
  command->add_option("folder", *folder, "A folder that `kintsugi run --report` wrote")->required();
  command->add_flag("--open", *open,
                    "Open the page in a browser (xdg-open); where there is none, say where the page is");
  command->callback([folder, open, &exit_code] {
    const Status rebuilt = RebuildReport(*folder);
    if (!rebuilt.ok()) {
      Complain(rebuilt.message());
      exit_code = core::kExitFailed;
      return;
    }
    std::error_code error;
    const std::string page = *folder + "/index.html";
    std::cout << page << std::endl;
    if (!*open) return;
    const std::string why_not = OpenPage(std::filesystem::absolute(page, error).lexically_normal().string());
    if (!why_not.empty()) Complain("open the page yourself: " + why_not);
  });
}

}  // namespace kintsugi::cli
