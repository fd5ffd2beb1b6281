// PageToken: what a caller must hold to give orders through the page.
//
// Threads: none; a value.
// Errors: ReadPageToken: kInvalidArgument, naming the option, the file and what to do. The token itself is in no message.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace kintsugi::observe {

class PageToken {
 public:
  static constexpr size_t kBytesMin = 16;
  static constexpr size_t kBytesMax = 512;

  // REQUIRES: as ReadPageToken makes sure of.
  explicit PageToken(std::string text) : text_(std::move(text)) {}
  // Takes as long whatever is presented, but for its length.
  bool Is(std::string_view presented) const;
  // Of "Bearer TOKEN", as HTTP has it; else nothing matches.
  bool IsIn(std::string_view authorization) const;

 private:
  std::string text_;
};

// One line of visible ASCII without spaces, in a file that its owner alone can read.
Result<PageToken> ReadPageToken(const std::string& file);

}  // namespace kintsugi::observe
