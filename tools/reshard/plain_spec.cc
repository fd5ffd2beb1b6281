#include "tools/reshard/plain_spec.h"

#include <simdjson.h>

#include <utility>

#include "tools/reshard/spec_side.h"

namespace kintsugi::reshard {
namespace {

namespace ondemand = simdjson::ondemand;

// Each reader says whether what it was to read stands there. simdjson's own error codes convert to "there is one".

bool ReadNumber(ondemand::value value, int32_t min, int32_t max, int32_t* number) {
  int64_t read = 0;
  if (value.get_int64().get(read) || read < min || read > max) return false;
  *number = static_cast<int32_t>(read);
  return true;
}

bool ReadNumbers(ondemand::value value, size_t count_max, std::vector<int64_t>* numbers) {
  ondemand::array list;
  if (value.get_array().get(list)) return false;
  numbers->clear();
  for (auto entry : list) {
    int64_t number = 0;
    if (numbers->size() == count_max || entry.get_int64().get(number)) return false;
    numbers->push_back(number);
  }
  return true;
}

bool IsNull(ondemand::value& value) {
  bool is_null = false;
  return !value.is_null().get(is_null) && is_null;
}

// The members' names are compared as they are written: one with escapes is left to the other reader.
class ShardReader {
 public:
  explicit ShardReader(SpecSide* side) : side_(*side) {}

  bool Read(ondemand::object object) {
    seen_ = 0;
    shard_.flat.reset();
    shard_.replica_id.assign(1, 0);
    shard_.rank_offsets.reset();
    shard_.prepend_axis_num = 0;
    for (auto member : object) {
      ondemand::raw_json_string name;
      ondemand::value value;
      if (member.key().get(name) || member.value().get(value) || !ReadMember(name, value)) return false;
    }
    if (!IsWhole()) return false;
    const auto* const tensor = side_.Find(key_);
    return tensor && side_.Add(*tensor, shard_).ok();
  }

 private:
  enum Member : unsigned {
    kRank = 1,
    kKey = 2,
    kOffset = 4,
    kShape = 8,
    kFlat = 16,
    kReplicaId = 32,
    kRankOffsets = 64,
    kPrependAxisNum = 128
  };

  bool ReadMember(ondemand::raw_json_string name, ondemand::value& value) {
    if (name == "rank") return IsFirst(kRank) && ReadNumber(value, 0, layout::kRanksMax - 1, &shard_.rank);
    if (name == "key") return IsFirst(kKey) && !value.get_string().get(key_);
    if (name == "offset") return IsFirst(kOffset) && ReadNumbers(value, kAxesRead, &shard_.offset);
    if (name == "shape") return IsFirst(kShape) && ReadNumbers(value, kAxesRead, &shard_.shape);
    if (name == "flat") return IsFirst(kFlat) && (IsNull(value) || ReadFlat(value));
    if (name == "replica_id") return IsFirst(kReplicaId) && (IsNull(value) || ReadReplicaId(value));
    if (name == "rank_offsets") return IsFirst(kRankOffsets) && ReadRankOffsets(value);
    if (name == "prepend_axis_num")
      return IsFirst(kPrependAxisNum) && ReadNumber(value, 0, layout::kAxesMax, &shard_.prepend_axis_num);
    return false;
  }
  bool IsFirst(Member member) {
    const bool is_first = !(seen_ & member);
    seen_ |= member;
    return is_first;
  }
  // A box, or a cut.
  bool IsWhole() const {
    constexpr unsigned kBoth = kRank | kKey | kShape;
    if (seen_ & kRankOffsets) return (seen_ & kBoth) == kBoth && !(seen_ & kOffset) && !shard_.flat;
    return (seen_ & (kBoth | kOffset)) == (kBoth | kOffset) && !(seen_ & kPrependAxisNum);
  }
  bool ReadFlat(ondemand::value value) {
    if (!ReadNumbers(value, 2, &numbers_) || numbers_.size() != 2) return false;
    shard_.flat = {numbers_[0], numbers_[1]};
    return true;
  }
  bool ReadReplicaId(ondemand::value value) {
    ondemand::json_type type;
    if (value.type().get(type)) return false;
    return type == ondemand::json_type::array ? ReadNumbers(value, layout::kReplicaIdLengthMax, &shard_.replica_id)
                                              : !value.get_int64().get(shard_.replica_id[0]);
  }
  bool ReadRankOffsets(ondemand::value value) {
    ondemand::array list;
    if (value.get_array().get(list)) return false;
    auto& offsets = shard_.rank_offsets.emplace();
    for (auto entry : list) {
      ondemand::value triple;
      if (entry.get(triple) || !ReadNumbers(triple, 3, &numbers_) || numbers_.size() != 3) return false;
      offsets.push_back({AxisOf(numbers_[0]), numbers_[1], numbers_[2]});
    }
    return true;
  }

  SpecSide& side_;
  unsigned seen_ = 0;
  std::string_view key_;
  ShardEntry shard_;
  std::vector<int64_t> numbers_;  // its memory is used again
};

class PlainReader {
 public:
  PlainReader(std::string* text, SpecSides sides) : sides_(sides) {
    text->reserve(text->size() + simdjson::SIMDJSON_PADDING);
    text_ = simdjson::padded_string_view(text->data(), text->size(), text->capacity());
  }

  std::optional<LayoutSpec> Read() {
    if (parser_.iterate(text_).get(document_) || !ReadShortMembers()) return std::nullopt;
    LayoutSpec spec;
    if (!ReadSide(SpecSide::Source(), &spec.source)) return std::nullopt;
    if (sides_ == SpecSides::kSource) return spec;
    auto hosts = ReadHosts(short_members_->Root());
    if (!hosts.ok() || !ReadSide(SpecSide::Target(), &spec.target)) return std::nullopt;
    spec.hosts = std::move(*hosts);
    return spec;
  }

 private:
  // All but the shards becomes a document of its own. Looks at all of the text.
  bool ReadShortMembers() {
    ondemand::object root;
    if (document_.get_object().get(root)) return false;
    std::string short_text = "{";
    bool has_source = false, has_target = false;
    for (auto member : root) {
      std::string_view name;
      ondemand::array list;
      std::string_view text;
      if (member.unescaped_key().get(name) || member.value().get_array().get(list)) return false;
      if (name == "source" || name == "target") {
        if (std::exchange(name == "source" ? has_source : has_target, true)) return false;
        continue;
      }
      if (name != "tensors" && name != "source_tensors" && name != "target_tensors" && name != "hosts") return false;
      if (list.raw_json().get(text)) return false;
      short_text.append(short_text.size() > 1 ? ",\"" : "\"").append(name).append("\":").append(text);
    }
    auto read = JsonDocument::Parse(short_text + "}");
    if (read.ok()) short_members_ = std::move(*read);
    return short_members_ && document_.current_location().error() == simdjson::OUT_OF_BOUNDS;  // nothing comes after it
  }

  bool ReadSide(SpecSide side, layout::Metadata* metadata) {
    ondemand::array list;
    if (!side.Open(short_members_->Root()).ok()) return false;
    document_.rewind();
    if (document_[side.name()].get_array().get(list)) return false;
    ShardReader shard(&side);
    for (auto entry : list) {
      ondemand::object object;
      if (entry.get_object().get(object) || !shard.Read(object)) return false;
    }
    *metadata = side.Build();
    return true;
  }

  const SpecSides sides_;
  simdjson::padded_string_view text_;
  ondemand::parser parser_;
  ondemand::document document_;
  std::optional<JsonDocument> short_members_;
};

}  // namespace

std::optional<LayoutSpec> ReadPlainSpec(std::string* text, SpecSides sides) { return PlainReader(text, sides).Read(); }

}  // namespace kintsugi::reshard
