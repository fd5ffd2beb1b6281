// kintsugi ckpt show | verify: look into a native checkpoint.
#include <iostream>

#include "replica/save/describe.h"
#include "replica/save/find.h"
#include "replica/save/verify.h"
#include "tools/cli/common.h"

namespace kintsugi::cli {

void AddCheckpoint(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("ckpt", "Look into native checkpoints");
  command->require_subcommand(1);
  auto path = std::make_shared<std::string>();
  CLI::App* show = command->add_subcommand("show", "Print what a checkpoint holds, as JSON");
  show->add_option("path", *path, "A checkpoint's folder, or a root (its newest complete one)")->required();
  show->callback([path, &exit_code] {
    Result<std::string> text = checkpoint::DescribeCheckpoint(*path);
    if (text.ok()) {
      std::cout << *text << std::endl;
      return;
    }
    Complain(text.status().message());
    exit_code = core::kExitFailed;
  });
  CLI::App* verify = command->add_subcommand("verify", "Read every block and compare its checksum");
  verify->add_option("path", *path, "A checkpoint's folder")->required();
  verify->callback([path, &exit_code] {
    const Status status = checkpoint::Verify(*path);
    if (status.ok()) {
      std::cout << *path << ": complete, every block as written" << std::endl;
      return;
    }
    Complain(status.message());
    exit_code = core::kExitFailed;
  });
}

}  // namespace kintsugi::cli
