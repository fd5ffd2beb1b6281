#include "replica/aoa/lexer.h"

#include <charconv>
#include <cstdio>

#include "runtime/base/check.h"

namespace kintsugi::aoa {
namespace {

// Not <cctype>: names must not depend on a locale.
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
// Bytes from 0x80 are letters of other scripts, in UTF-8.
bool IsFirst(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool IsLater(char c) { return IsFirst(c) || IsDigit(c) || c == '.' || c == '$' || c == '*' || c == '^' || c == '/'; }

// Length of the identifier at `at`. A '-' belongs to it unless it begins an arrow or stands at the end.
size_t IdentifierLength(const std::string& text, size_t at) {
  size_t end = at;
  while (end < text.size() &&
         (IsLater(text[end]) || (text[end] == '-' && end + 1 < text.size() && IsLater(text[end + 1]))))
    ++end;
  return end - at;
}

std::string Printable(char c) {
  if (c >= 0x20 && c < 0x7f) return std::string("'") + c + "'";
  char text[16];
  std::snprintf(text, sizeof text, "byte 0x%02X", static_cast<unsigned char>(c));
  return text;
}

size_t LengthWhile(const std::string& text, size_t at, bool (*belongs)(char)) {
  size_t end = at;
  while (end < text.size() && belongs(text[end])) ++end;
  return end - at;
}

// The token of one or two fixed characters at `at`, or kEnd.
TokenKind Punctuation(const std::string& text, size_t at) {
  switch (text[at]) {
    case '-':
      return at + 1 < text.size() && text[at + 1] == '>' ? TokenKind::kArrow : TokenKind::kEnd;
    case '=':
      return TokenKind::kEqual;
    case ':':
      return TokenKind::kColon;
    case '[':
      return TokenKind::kOpen;
    case ']':
      return TokenKind::kClose;
    case ',':
      return TokenKind::kComma;
    default:
      return TokenKind::kEnd;
  }
}

// Length of the token at `at`, which is neither blank nor punctuation; fills in the token.
Result<size_t> ReadWord(const Line& line, size_t at, Token* token, Reporter& reporter) {
  const std::string& text = line.text;
  const char c = text[at];
  if (IsDigit(c)) {
    const size_t length = LengthWhile(text, at, IsDigit);
    token->kind = TokenKind::kNumber;
    token->text = text.substr(at, length);
    const auto end = std::from_chars(text.data() + at, text.data() + at + length, token->number);
    if (end.ec != std::errc())
      return reporter.Fail(line, token->column, "the number " + token->text.substr(0, 40) + " is too large");
    return length;
  }
  if (c == '"' || c == '\'') {
    const size_t close = text.find(c, at + 1);
    if (close == std::string::npos) return reporter.Fail(line, token->column, "this string does not end on its line");
    token->kind = TokenKind::kString;
    token->text = text.substr(at + 1, close - at - 1);
    return close + 1 - at;
  }
  if (IsFirst(c)) {
    const size_t length = IdentifierLength(text, at);
    token->kind = TokenKind::kIdentifier;
    token->text = text.substr(at, length);
    return length;
  }
  return reporter.Fail(line, token->column, "unexpected character " + Printable(c));
}

}  // namespace

bool IsIdentifier(const std::string& name) {
  return !name.empty() && IsFirst(name[0]) && IdentifierLength(name, 0) == name.size();
}

std::string DescribeKind(TokenKind kind) {
  switch (kind) {
    case TokenKind::kArrow:
      return "'->'";
    case TokenKind::kEqual:
      return "'='";
    case TokenKind::kColon:
      return "':'";
    case TokenKind::kOpen:
      return "'['";
    case TokenKind::kClose:
      return "']'";
    case TokenKind::kComma:
      return "','";
    case TokenKind::kNumber:
      return "a number";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kIdentifier:
      return "a name";
    case TokenKind::kEnd:
      return "the end of the statement";
  }
  return "an unknown token";
}

std::string DescribeToken(const Token& token) {
  switch (token.kind) {
    case TokenKind::kNumber:
      return "the number " + token.text;
    case TokenKind::kString:
      return "the string '" + token.text + "'";
    case TokenKind::kIdentifier:
      return "the name '" + token.text + "'";
    default:
      return DescribeKind(token.kind);
  }
}

std::vector<std::shared_ptr<const Line>> SplitLines(const std::vector<std::string>& entries) {
  std::vector<std::shared_ptr<const Line>> lines;
  const auto add = [&lines](std::string text) {
    lines.push_back(std::make_shared<const Line>(Line{static_cast<int>(lines.size()) + 1, std::move(text)}));
  };
  for (const std::string& entry : entries) {
    size_t begin = 0;
    while (true) {
      const size_t end = entry.find_first_of("\r\n", begin);
      add(entry.substr(begin, end - begin));
      if (end == std::string::npos) break;
      begin = end + (entry.compare(end, 2, "\r\n") == 0 ? 2 : 1);
      if (begin == entry.size()) break;
    }
  }
  return lines;
}

Result<std::vector<Token>> Tokenize(const Line& line, Reporter& reporter) {
  std::vector<Token> tokens;
  const std::string& text = line.text;
  size_t at = 0;
  while (at < text.size() && text[at] != '#') {  // a comment ends the line
    if (text[at] == ' ' || text[at] == '\t') {
      ++at;
      continue;
    }
    Token token;
    token.column = static_cast<int>(at) + 1;
    if (const TokenKind kind = Punctuation(text, at); kind != TokenKind::kEnd) {
      token.kind = kind;
      at += kind == TokenKind::kArrow ? 2 : 1;
    } else {
      KINTSUGI_ASSIGN_OR_RETURN(const size_t length, ReadWord(line, at, &token, reporter));
      KINTSUGI_CHECK(length > 0 && length <= text.size() - at, "a token has characters of its line");
      at += length;
    }
    tokens.push_back(std::move(token));
  }
  tokens.push_back({TokenKind::kEnd, "", 0, static_cast<int>(at) + 1});
  return tokens;
}

}  // namespace kintsugi::aoa
