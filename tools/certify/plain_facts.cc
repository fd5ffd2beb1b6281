#include "tools/certify/plain_facts.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/report/text.h"

namespace kintsugi {
namespace {

Result<PlainFacts> ReadRank(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return Status(StatusCode::kNotFound, "'" + file.string() + "' is not there");
  const auto wrong = [&] { return Status(StatusCode::kDataLoss, "'" + file.string() + "' holds no facts of a rank"); };
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("values") || !json.contains("losses")) return wrong();
  PlainFacts facts;
  try {
    facts.device = json.value("device", "");
    facts.values = json["values"].get<std::map<std::string, std::string>>();
    for (const auto& [step, loss] : json["losses"].items()) facts.losses[std::stoull(step)] = loss.get<std::string>();
  } catch (const std::exception&) {
    return wrong();
  }
  return facts;
}

std::string DifferenceOfValues(const std::vector<PlainFacts>& found, const std::vector<PlainFacts>& other,
                               const std::string& where) {
  std::string first;
  size_t differ = 0;
  for (size_t rank = 0; rank < other.size(); ++rank) {
    for (const auto& [name, value] : other[rank].values) {
      const auto here = found[rank].values.find(name);
      const bool missing = here == found[rank].values.end();
      if (!missing && here->second == value) continue;
      if (differ++ == 0)
        first = "rank " + std::to_string(rank) + " has '" + name + "' as " + (missing ? "nothing" : here->second) +
                ", " + where + " it is " + value;
    }
  }
  if (differ == 0) return "";
  return Counted(differ, "value differs", "values differ") + ": " + first;
}

}  // namespace

Result<std::vector<PlainFacts>> ReadFacts(const std::filesystem::path& folder, int world_size) {
  std::vector<PlainFacts> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    KINTSUGI_ASSIGN_OR_RETURN(auto facts, ReadRank(folder / ("rank-" + std::to_string(rank) + ".json")));
    ranks.push_back(std::move(facts));
  }
  return ranks;
}

std::string DifferenceOfFacts(const std::vector<PlainFacts>& found, const std::vector<PlainFacts>& other,
                              const std::string& where) {
  for (size_t rank = 0; rank < other.size(); ++rank) {
    const std::string whose = "rank " + std::to_string(rank) + ": ";
    for (const auto& [step, loss] : other[rank].losses) {
      const auto here = found[rank].losses.find(step);
      if (here == found[rank].losses.end() || here->second != loss)
        return whose + "the first loss that differs is that of step " + std::to_string(step) + ": " +
               (here == found[rank].losses.end() ? "none" : here->second) + ", " + where + " " + loss;
    }
  }
  return DifferenceOfValues(found, other, where);
}

std::string ValuesFromPlain(const std::vector<PlainFacts>& found, const std::vector<PlainFacts>& plain) {
  return DifferenceOfValues(found, plain, kUnderPlainTorch);
}

std::string DescribeFacts(const std::vector<PlainFacts>& plain) {
  if (plain.empty()) return "nothing";
  return Counted(plain[0].values.size(), "value", "values") + " and " +
         Counted(plain[0].losses.size(), "loss", "losses") + " of each rank";
}

}  // namespace kintsugi
