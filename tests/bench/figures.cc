#include "tests/bench/figures.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

namespace kintsugi::bench {
namespace {

// Runnable threads on this host, averaged over a minute: figures of a busy machine must say so.
double Load() {
  double load[1] = {0};
  return getloadavg(load, 1) == 1 ? load[0] : 0;
}

Json Host() {
  utsname name{};
  uname(&name);
  std::ifstream cpus("/proc/cpuinfo");
  std::string line, model;
  while (model.empty() && std::getline(cpus, line))
    if (line.rfind("model name", 0) == 0) model = line.substr(line.find(':') + 2);
  return {{"cores", std::thread::hardware_concurrency()},
          {"cpu", model},
          {"kernel", name.release},
          {"machine", name.machine},
          {"load_average_begin", Load()}};
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::string Line(const Json& figure) {
  char text[240];
  std::snprintf(text, sizeof text, "%-46s %10.4g %-6s", figure["id"].get<std::string>().c_str(),
                figure["value"].get<double>(), figure["unit"].get<std::string>().c_str());
  std::string line = text;
  if (!figure["baseline"].is_null()) {
    std::snprintf(text, sizeof text, "  baseline %10.4g  ratio %8.3g", figure["baseline"].get<double>(),
                  figure["ratio"].is_null() ? std::nan("") : figure["ratio"].get<double>());
    line += text;
  }
  if (figure.contains("torch")) {
    std::snprintf(text, sizeof text, "  torch %8.4g  times %5.3g", figure["torch"]["value"].get<double>(),
                  figure["torch"]["times"].get<double>());
    line += text;
  }
  if (!figure["budget"].is_null()) {
    std::snprintf(text, sizeof text, "  budget %.4g: %s", figure["budget"].get<double>(),
                  figure["ok"].get<bool>() ? "ok" : "MISSED");
    line += text;
  }
  return line;
}

}  // namespace

Figure AtMost(std::string id, double value, std::string unit, std::optional<double> budget) {
  Figure figure{std::move(id), value, std::move(unit), {}, {}, budget};
  figure.ok = !budget || value <= *budget;
  return figure;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Json Rounded(const std::vector<double>& values) {
  Json rounded = Json::array();
  for (const double value : values) rounded.push_back(std::round(value * 1000) / 1000);
  return rounded;
}

Figures::Figures(std::string name) : name_(std::move(name)), host_(Host()) {}

void Figures::Add(const Figure& figure) {
  std::optional<double> ratio = figure.ratio;
  if (!ratio && figure.baseline && *figure.baseline != 0) ratio = figure.value / *figure.baseline;
  Json json = {{"id", figure.id},
               {"value", figure.value},
               {"unit", figure.unit},
               {"baseline", OrNull(figure.baseline)},
               {"ratio", OrNull(ratio)},
               {"budget", OrNull(figure.budget)},
               {"ok", figure.ok}};
  json.update(figure.more);
  figures_.push_back(std::move(json));
}

int Figures::Finish(const std::string& json) const {
  Json host = host_;
  host["load_average_end"] = Load();
  const Json result = {{"name", name_}, {"host", host}, {"figures", figures_}};
  std::ostream& people = json == "-" ? std::cerr : std::cout;
  bool ok = true;
  for (const Json& figure : figures_) {
    people << Line(figure) << "\n";
    ok &= figure["ok"].get<bool>();
  }
  people << "load average " << host["load_average_begin"] << " at the beginning, " << host["load_average_end"]
         << " at the end, " << host["cores"] << " cores\n";
  if (json == "-") {
    std::cout << result.dump(2) << std::endl;
  } else if (!json.empty()) {
    std::ofstream file(json);
    file << result.dump(2) << "\n";
    if (!file.flush()) Need({StatusCode::kPermissionDenied, "cannot write the figures to " + json});
  }
  return ok ? 0 : 1;
}

void AddJsonOption(CLI::App& app, std::string* json) {
  app.add_option("--json", *json, "Write the figures as JSON to this file, - or nothing for standard output")
      ->expected(0, 1)
      ->default_str("-");
}

std::string JsonTarget(const CLI::App& app, const std::string& json) {
  return app.count("--json") > 0 && json.empty() ? "-" : json;
}

Json AskPeer(const std::string& python, const std::string& script, uint64_t mib, int runs) {
  const std::string command =
      "'" + python + "' '" + script + "' " + std::to_string(mib) + " " + std::to_string(runs) + " 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {};
  std::string text;
  for (char part[4096]; const size_t count = std::fread(part, 1, sizeof part, pipe);) text.append(part, count);
  return pclose(pipe) == 0 ? Json::parse(text) : Json();
}

void Need(const Status& status) {
  if (status.ok()) return;
  std::cerr << "error: " << status.ToString() << std::endl;
  std::exit(1);
}

}  // namespace kintsugi::bench
