#include "runtime/wire/byte_reader.h"

namespace kintsugi::wire {

ByteReader::ByteReader(std::string_view bytes)
    : input_(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {
  KINTSUGI_CHECK(bytes.size() <= std::numeric_limits<int>::max(), "protobuf has no message of 2 GiB and more");
}

bool ByteReader::ReadSize(int* size) {
  const int begin = input_.CurrentPosition();
  return input_.ReadVarintSizeAsInt(size) && input_.CurrentPosition() - begin <= kBytesMax &&
         *size <= input_.BytesUntilLimit();
}

void ByteReader::Refuse(std::string_view word, uint64_t raw, bool is_signed) {
  if (!out_of_range_.ok()) return;
  RefuseAs(OutOfRange(word, is_signed ? std::to_string(static_cast<int64_t>(raw)) : std::to_string(raw)));
}

void ByteReader::RefuseAs(const Status& why) {
  KINTSUGI_CHECK(!why.ok(), "a value is refused without a reason");
  if (out_of_range_.ok()) out_of_range_ = why;
}

void ByteReader::SayWhere(std::string_view message, std::string_view field) {
  KINTSUGI_CHECK(!out_of_range_.ok() && !has_place_, "the place of a refusal that there is not, or that has one");
  has_place_ = true;
  out_of_range_ = Status(out_of_range_.code(), out_of_range_.message() + ", in " + std::string(message) + "." +
                                                   std::string(field));
}

}  // namespace kintsugi::wire
