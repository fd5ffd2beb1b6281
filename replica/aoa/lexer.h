// The lexer: lines of a program, tokens of a line.
//
// Errors: kInvalidArgument names the character and its column.
#pragma once

#include <string>
#include <vector>

#include "replica/aoa/diagnostic.h"
#include "replica/aoa/statement.h"
#include "runtime/base/result.h"

namespace kintsugi::aoa {

enum class TokenKind : uint8_t {
  kArrow,
  kEqual,
  kColon,
  kOpen,
  kClose,
  kComma,
  kNumber,
  kString,
  kIdentifier,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;    // a string without its quotes
  int64_t number = 0;  // kNumber
  int column = 0;
};

// "'->'", "a name": for messages.
std::string DescribeKind(TokenKind kind);
std::string DescribeToken(const Token& token);

// Whether the name can be written without quotes.
bool IsIdentifier(const std::string& name);

// The lines of all entries, one after the other; CR LF, CR and LF end a line, and so does the end of an entry. Lines
// are numbered from 1, blank ones too, so with one statement per entry a statement's number is its entry's.
std::vector<std::shared_ptr<const Line>> SplitLines(const std::vector<std::string>& entries);

// The tokens of a line; the last one is kEnd.
Result<std::vector<Token>> Tokenize(const Line& line, Reporter& reporter);

}  // namespace kintsugi::aoa
