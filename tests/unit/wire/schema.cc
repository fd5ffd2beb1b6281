#include "tests/unit/wire/schema.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <fstream>

#include "runtime/base/check.h"

namespace kintsugi::wire {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

Schema& Schema::Get() {
  static Schema schema;
  return schema;
}

Schema::Schema() {
  std::ifstream file(KINTSUGI_SCHEMA, std::ios::binary);
  google::protobuf::FileDescriptorSet set;
  KINTSUGI_CHECK(set.ParseFromIstream(&file), "protoc left no schema at " KINTSUGI_SCHEMA);
  for (const auto& one : set.file())
    KINTSUGI_CHECK(pool_.BuildFile(one) != nullptr, "protobuf refuses the schema " + one.name());
}

std::unique_ptr<Message> Schema::New(const std::string& message) {
  const auto* type = pool_.FindMessageTypeByName("kintsugi.wire.pb." + message);
  KINTSUGI_CHECK(type != nullptr, "the schema has no message " + message);
  return std::unique_ptr<Message>(factory_.GetPrototype(type)->New());
}

std::unique_ptr<Message> Schema::Parse(const std::string& message, const std::string& bytes) {
  auto parsed = New(message);
  return parsed->ParseFromString(bytes) ? std::move(parsed) : nullptr;
}

std::string Schema::Bytes(const std::string& message, const std::string& text) {
  auto parsed = New(message);
  KINTSUGI_CHECK(google::protobuf::TextFormat::ParseFromString(text, parsed.get()), "the schema does not know " + text);
  return BytesOf(*parsed);
}

std::string Schema::BytesOf(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream out(&bytes);
  google::protobuf::io::CodedOutputStream coded(&out);
  coded.SetSerializationDeterministic(true);
  message.SerializeWithCachedSizes((message.ByteSizeLong(), &coded));
  coded.Trim();
  return bytes;
}

bool Schema::HasUnknownFields(const Message& message) {
  const auto* reflection = message.GetReflection();
  if (!reflection->GetUnknownFields(message).empty()) return true;
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated() && HasUnknownFields(reflection->GetMessage(message, field))) return true;
    for (int i = 0; field->is_repeated() && i < reflection->FieldSize(message, field); ++i)
      if (HasUnknownFields(reflection->GetRepeatedMessage(message, field, i))) return true;
  }
  return false;
}

}  // namespace kintsugi::wire
