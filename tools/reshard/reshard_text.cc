// The answer of a plan as JSON and as a table.
#include <algorithm>
#include <map>

#include "tools/report/text.h"
#include "tools/reshard/json_text.h"
#include "tools/reshard/reshard_answer.h"
#include "tools/reshard/table.h"

namespace kintsugi::reshard {
namespace {

constexpr size_t kPartBytes = size_t{1} << 16;
constexpr size_t kMovesShown = 40;
constexpr size_t kRanksShown = 64;

std::string BytesText(int64_t bytes) { return FormatBytes(static_cast<uint64_t>(bytes)); }

std::string Joined(const std::vector<std::string>& texts, const char* between) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : between) + text;
  return all;
}

}  // namespace

std::string ReshardAnswer::ToJson() const {
  std::string text;
  WriteJson([&](std::string_view part) { text += part; });
  return text;
}

void ReshardAnswer::WriteJson(const std::function<void(std::string_view)>& write) const {
  std::vector<std::string> step_texts;
  for (const auto& list : steps) AppendTexts(list, &step_texts.emplace_back());
  std::vector<std::string> keys, source_keys;
  for (const layout::KeyMeta& key : spec.target.keys) keys.push_back(Quoted(key.name));
  for (const layout::KeyMeta& key : spec.source.keys) source_keys.push_back(Quoted(key.name));
  std::string text = "{\"ok\":true,\"moves\":[";
  for (size_t i = 0; i < moves.size(); ++i) {
    const ListedMove& move = moves[i];
    text += i ? ",\n{\"key\":" : "\n{\"key\":";
    text += keys[move.key];
    text += ",\"source_key\":";
    text += source_keys[move.source_key];
    text += ",\"from_rank\":";
    AppendNumber(move.from, &text);
    text += ",\"to_rank\":";
    AppendNumber(move.to, &text);
    text += ",\"source_box\":";
    AppendBox(SourceBox(move), &text);
    text += ",\"target_box\":";
    AppendBox(TargetBox(move), &text);
    text += ",\"steps\":";
    text += step_texts[move.steps];
    text += ",\"bytes\":";
    AppendNumber(move.bytes, &text);
    text += '}';
    if (text.size() < kPartBytes) continue;
    write(text);
    text.clear();
  }
  text += "],\n\"bytes_total\":" + std::to_string(bytes_total) + ",\"bytes_local\":" + std::to_string(bytes_local);
  if (bytes_moved) {
    text += ",\"bytes_moved\":" + std::to_string(*bytes_moved) + ",\"added\":";
    AppendTexts(added, &text);
    text += ",\"dropped\":";
    AppendTexts(dropped, &text);
  }
  text += ",\"unexpected\":";
  AppendTexts(unexpected, &text);
  text += ",\"unread\":";
  AppendTexts(unread, &text);
  write(text + ",\"checked\":true}");
}

std::string ReshardAnswer::ToTable() const {
  struct OfRank {
    int64_t sent = 0, received = 0, kept = 0;
  };
  std::map<int32_t, OfRank> ranks;
  for (const ListedMove& move : moves) {
    if (move.from == move.to) {
      ranks[move.to].kept += move.bytes;
      continue;
    }
    ranks[move.from].sent += move.bytes;
    ranks[move.to].received += move.bytes;
  }
  std::string text = Counted(moves.size(), "move", "moves") + ", " + BytesText(bytes_total) + ", of which " +
                     BytesText(bytes_local) + " stay on their rank. Checked: every element asked for is written once.\n";
  if (bytes_moved && *bytes_moved != bytes_total)
    text += "What several tensors of one rank are made of travels once: " + BytesText(*bytes_moved) + " in all.\n";
  if (!added.empty()) text += "Added by the program, nothing is written: " + Joined(added, ", ") + "\n";
  if (!dropped.empty()) text += "States that nothing speaks of, nothing is written: " + Joined(dropped, ", ") + "\n";
  if (!unexpected.empty()) text += "Not stored, nothing is written: " + Joined(unexpected, ", ") + "\n";
  if (!unread.empty()) text += "Stored, but asked for by no rank: " + Joined(unread, ", ") + "\n";
  Table per_rank({"rank", "keeps", "sends", "receives"});
  for (const auto& [rank, bytes] : ranks) {
    if (per_rank.rows() == kRanksShown) break;
    per_rank.Add({std::to_string(rank), BytesText(bytes.kept), BytesText(bytes.sent), BytesText(bytes.received)});
  }
  text += "\n" + per_rank.ToText();
  if (ranks.size() > kRanksShown) text += "and " + std::to_string(ranks.size() - kRanksShown) + " more ranks\n";
  Table list(bytes_moved
                 ? std::vector<std::string>{"tensor", "from", "to", "bytes", "box", "made of", "its box", "steps"}
                 : std::vector<std::string>{"tensor", "from", "to", "bytes", "box"});
  for (size_t i = 0; i < std::min(moves.size(), kMovesShown); ++i) {
    const ListedMove& move = moves[i];
    std::vector<std::string> row = {spec.target.keys[move.key].name, std::to_string(move.from),
                                    move.from == move.to ? "itself" : std::to_string(move.to), BytesText(move.bytes),
                                    Describe(TargetBox(move))};
    if (bytes_moved)
      row.insert(row.end(),
                 {spec.source.keys[move.source_key].name, Describe(SourceBox(move)), Joined(steps[move.steps], ", ")});
    list.Add(std::move(row));
  }
  text += "\n" + list.ToText();
  if (moves.size() > kMovesShown)
    text += "and " + std::to_string(moves.size() - kMovesShown) + " more moves; --json lists them all\n";
  return text;
}

}  // namespace kintsugi::reshard
