// kintsugi report: make a report's pages anew from its record.
#include <iostream>

#include "tools/cli/common.h"
#include "tools/report/report.h"

namespace kintsugi::cli {

void AddReport(CLI::App& app, int& exit_code) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("report", "Make summary, trace and page of a report folder anew");
  command->add_option("folder", *folder, "A folder that `kintsugi run --report` wrote")->required();
  command->callback([folder, &exit_code] {
    const Status rebuilt = RebuildReport(*folder);
    if (rebuilt.ok()) {
      std::cout << *folder << "/index.html" << std::endl;
      return;
    }
    Complain(rebuilt.message());
    exit_code = core::kExitFailed;
  });
}

}  // namespace kintsugi::cli
