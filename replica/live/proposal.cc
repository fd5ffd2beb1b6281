#include "replica/live/proposal.h"

#include <span>
#include <string_view>

#include "replica/layout/codec.h"
#include "replica/layout/merge.h"

namespace kintsugi::live {
namespace {

void PutNumber(uint64_t number, Word* word) {
  for (int shift = 0; shift < 64; shift += 8) word->push_back(static_cast<uint8_t>(number >> shift));
}

void PutText(std::string_view text, Word* word) {
  PutNumber(text.size(), word);
  word->insert(word->end(), text.begin(), text.end());
}

// Takes what was put, in its order.
class WordReader {
 public:
  explicit WordReader(std::span<const uint8_t> rest) : rest_(rest) {}

  Result<uint64_t> Number() {
    if (rest_.size() < 8) return Torn();
    uint64_t number = 0;
    for (size_t i = 0; i < 8; ++i) number |= uint64_t{rest_[i]} << (8 * i);
    rest_ = rest_.subspan(8);
    return number;
  }

  Result<std::span<const uint8_t>> Bytes() {
    KINTSUGI_ASSIGN_OR_RETURN(const uint64_t size, Number());
    if (rest_.size() < size) return Torn();
    const auto bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }

  Result<layout::Metadata> Layout() {
    KINTSUGI_ASSIGN_OR_RETURN(const auto bytes, Bytes());
    auto decoded = layout::Decode(bytes);
    if (!decoded.ok()) return decoded.error().ToStatus();
    return std::move(decoded).value();
  }

 private:
  static Status Torn() { return {StatusCode::kDataLoss, "a proposal that ends early"}; }

  std::span<const uint8_t> rest_;
};

Status CompareManner(const Proposal& a, const Proposal& b) {
  static const std::string kNothing = "nothing";
  for (size_t i = 0; i < std::max(a.manner.size(), b.manner.size()); ++i) {
    const std::string& left = i < a.manner.size() ? a.manner[i] : kNothing;
    const std::string& right = i < b.manner.size() ? b.manner[i] : kNothing;
    if (left != right)
      return {StatusCode::kInvalidArgument, "rank " + std::to_string(a.rank) + " says \"" + left + "\" and rank " +
                                                std::to_string(b.rank) + " \"" + right +
                                                "\": all ranks give the same program and options"};
  }
  return Status::Ok();
}

}  // namespace

Word Pack(const Proposal& proposal) {
  Word word;
  PutNumber(static_cast<uint64_t>(proposal.rank), &word);
  PutNumber(proposal.manner.size(), &word);
  for (const std::string& line : proposal.manner) PutText(line, &word);
  PutText(layout::Encode(proposal.source), &word);
  PutText(layout::Encode(proposal.target), &word);
  return word;
}

Result<Proposal> Unpack(const Word& word) {
  Proposal proposal;
  WordReader reader(word);
  KINTSUGI_ASSIGN_OR_RETURN(const uint64_t rank, reader.Number());
  proposal.rank = static_cast<int32_t>(rank);
  KINTSUGI_ASSIGN_OR_RETURN(const uint64_t lines, reader.Number());
  for (uint64_t i = 0; i < lines; ++i) {
    KINTSUGI_ASSIGN_OR_RETURN(const auto line, reader.Bytes());
    proposal.manner.emplace_back(line.begin(), line.end());
  }
  KINTSUGI_ASSIGN_OR_RETURN(proposal.source, reader.Layout());
  KINTSUGI_ASSIGN_OR_RETURN(proposal.target, reader.Layout());
  return proposal;
}

Result<Word> FoldProposals(std::vector<Word> words) {
  if (words.size() == 1) return std::move(words.front());
  Proposal all;
  std::vector<layout::Metadata> sources, targets;
  for (size_t i = 0; i < words.size(); ++i) {
    KINTSUGI_ASSIGN_OR_RETURN(Proposal one, Unpack(words[i]));
    words[i] = {};
    sources.push_back(std::move(one.source));
    targets.push_back(std::move(one.target));
    if (i == 0)
      all = std::move(one);
    else
      KINTSUGI_RETURN_IF_ERROR(CompareManner(all, one));
  }
  all.source = layout::MergeAll(sources);
  all.target = layout::MergeAll(targets);
  return Pack(all);
}

}  // namespace kintsugi::live
