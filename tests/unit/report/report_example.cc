// Writes a sample report into a folder, to look at the page: report_example FOLDER [--alone|--elastic]
#include <cstdio>
#include <cstring>

#include "tests/unit/report/sample_record.h"
#include "tools/report/report.h"

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: report_example FOLDER [--alone|--elastic]\n");
    return 2;
  }
  const bool alone = argc == 3 && std::strcmp(argv[2], "--alone") == 0;
  const bool elastic = argc == 3 && std::strcmp(argv[2], "--elastic") == 0;
  const kintsugi::RunRecord reference = kintsugi::UndisturbedRun();
  const kintsugi::RunRecord run = elastic ? kintsugi::ElasticRun() : kintsugi::FaultedRun();
  const kintsugi::Status status = kintsugi::WriteReport(argv[1], run, alone || elastic ? nullptr : &reference);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
