// Schema: control.proto and node.proto as protobuf's own code understands them, to compare ours with.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>

#include <memory>
#include <string>

namespace kintsugi::wire {

class Schema {
 public:
  // As protoc compiled it. One for all tests.
  static Schema& Get();

  // Null: the bytes are no such message.
  std::unique_ptr<google::protobuf::Message> Parse(const std::string& message, const std::string& bytes);
  // The bytes of what is written in protobuf's text format.
  std::string Bytes(const std::string& message, const std::string& text);
  // Maps in the order of their keys.
  static std::string BytesOf(const google::protobuf::Message& message);
  // Whether there is a field, at any depth, that the schema does not have.
  static bool HasUnknownFields(const google::protobuf::Message& message);

 private:
  Schema();
  std::unique_ptr<google::protobuf::Message> New(const std::string& message);

  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_{&pool_};
};

}  // namespace kintsugi::wire
