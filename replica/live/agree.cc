#include "replica/live/agree.h"

#include <algorithm>
#include <optional>

namespace kintsugi::live {
namespace {

// A word on its way: first how long it is and its status' code, then its bytes or the error's text.
struct WordHeader {
  uint64_t bytes = 0;
  uint64_t code = 0;
};

Status SendWord(Link& link, const Result<Word>& word, TimePoint deadline) {
  const std::string& text = word.status().message();
  const uint8_t* data = word.ok() ? word->data() : reinterpret_cast<const uint8_t*>(text.data());
  const WordHeader header{word.ok() ? word->size() : text.size(), static_cast<uint64_t>(word.status().code())};
  KINTSUGI_RETURN_IF_ERROR(SendBytes(link, &header, sizeof header, deadline));
  return header.bytes == 0 ? Status::Ok() : SendBytes(link, data, header.bytes, deadline);
}

Result<Result<Word>> ReceiveWord(Link& link, TimePoint deadline) {
  WordHeader header;
  KINTSUGI_RETURN_IF_ERROR(link.Receive(&header, sizeof header, deadline));
  if (header.bytes > kWordBytesMax || header.code > static_cast<uint64_t>(StatusCode::kInternal))
    return Status(StatusCode::kDataLoss,
                  "no word: " + std::to_string(header.bytes) + " bytes, code " + std::to_string(header.code));
  Word word(header.bytes);
  if (!word.empty()) KINTSUGI_RETURN_IF_ERROR(link.Receive(word.data(), word.size(), deadline));
  const auto code = static_cast<StatusCode>(header.code);
  if (code == StatusCode::kOk) return Result<Word>(std::move(word));
  return Result<Word>(Status(code, std::string(word.begin(), word.end())));
}

Result<Word> FoldWords(std::vector<Result<Word>> said, const Fold& fold) {
  std::vector<Word> words;
  for (Result<Word>& one : said) {
    KINTSUGI_RETURN_IF_ERROR(one.status());
    words.push_back(std::move(one).value());
  }
  KINTSUGI_ASSIGN_OR_RETURN(Word word, fold(std::move(words)));
  if (word.size() <= kWordBytesMax) return word;
  return Status(StatusCode::kResourceExhausted, std::to_string(word.size()) +
                                                    " bytes are more than ranks tell each other (" +
                                                    std::to_string(kWordBytesMax) + ")");
}

}  // namespace

std::optional<size_t> ParentOf(size_t place) {
  if (place == 0) return std::nullopt;
  return place & (place - 1);
}

std::vector<size_t> ChildrenOf(size_t place, size_t count) {
  std::vector<size_t> children;
  for (size_t step = 1; place + step < count && (place & step) == 0; step *= 2) children.push_back(place + step);
  return children;
}

Result<Result<Word>> Agree(LinkMesh& mesh, std::string_view what, Result<Word> own, const Fold& fold,
                           TimePoint deadline, CancelToken* cancel) {
  const std::vector<int32_t>& members = mesh.members();
  const auto found = std::lower_bound(members.begin(), members.end(), mesh.self());
  const auto place = static_cast<size_t>(found - members.begin());
  std::vector<int32_t> children;
  for (const size_t child : ChildrenOf(place, members.size())) children.push_back(members[child]);
  std::optional<int32_t> parent;
  if (const auto above = ParentOf(place)) parent = members[*above];
  std::vector<int32_t> neighbours = children;
  if (parent) neighbours.push_back(*parent);
  KINTSUGI_RETURN_IF_ERROR(mesh.Connect(neighbours, deadline, cancel).Annotate(what));

  const auto across = [&]() -> Result<Result<Word>> {
    std::vector<Result<Word>> said;
    said.push_back(std::move(own));
    for (const int32_t child : children) {
      KINTSUGI_ASSIGN_OR_RETURN(Result<Word> word, ReceiveWord(mesh.To(child), deadline));
      said.push_back(std::move(word));
    }
    Result<Word> outcome = FoldWords(std::move(said), fold);
    if (parent) {
      KINTSUGI_RETURN_IF_ERROR(SendWord(mesh.To(*parent), outcome, deadline));
      KINTSUGI_ASSIGN_OR_RETURN(outcome, ReceiveWord(mesh.To(*parent), deadline));
    }
    for (const int32_t child : children) KINTSUGI_RETURN_IF_ERROR(SendWord(mesh.To(child), outcome, deadline));
    return outcome;
  };
  Result<Result<Word>> agreed = across();
  if (!agreed.ok()) return agreed.status().Annotate(what);
  return agreed;
}

}  // namespace kintsugi::live
