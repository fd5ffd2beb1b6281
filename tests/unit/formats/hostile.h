// What tests of hostile bytes share: a refusal that names its file and its reason, and archives to spoil.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "replica/formats/zip/zip.h"

namespace kintsugi::formats {

template <typename T, typename... Parts>
void ExpectRefused(const Result<T>& result, const Parts&... parts) {
  ASSERT_FALSE(result.ok());
  const std::string message = result.status().message();
  EXPECT_NE(message.find("'file'"), std::string::npos) << message;
  for (const std::string& part : {std::string(parts)...}) EXPECT_NE(message.find(part), std::string::npos) << message;
}

inline std::string ZipOf(const std::vector<std::pair<std::string, std::string>>& records) {
  OutlineFile file;
  zip::Layer layer(&file, "archive");
  for (const auto& [name, bytes] : records) layer.AddBytes(name, bytes);
  layer.Finish();
  std::string bytes;
  for (const Segment& segment : file.segments)
    bytes += segment.kind == Segment::Kind::kLate ? segment.late({}) : segment.bytes;
  return bytes;
}

}  // namespace kintsugi::formats
