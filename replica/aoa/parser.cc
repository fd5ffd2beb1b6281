#include "replica/aoa/parser.h"

#include <utility>

#include "replica/aoa/lexer.h"

namespace kintsugi::aoa {
namespace {

class LineParser {
 public:
  LineParser(std::shared_ptr<const Line> line, std::vector<Token> tokens, const UserMacros* macros, Reporter& reporter)
      : line_(std::move(line)), tokens_(std::move(tokens)), macros_(macros), reporter_(reporter) {}

  Result<StatementPtr> Parse() {
    auto statement = std::make_shared<Statement>();
    statement->line = line_;
    do {
      KINTSUGI_RETURN_IF_ERROR(ParseName(&statement->left));
    } while (Take(TokenKind::kComma));
    if (!Take(TokenKind::kArrow)) return Unexpected("',' or '->'");
    do {
      KINTSUGI_RETURN_IF_ERROR(ParseRight(statement.get()));
    } while (Take(TokenKind::kComma));
    if (Next().kind != TokenKind::kEnd) return Unexpected("',' or the end of the statement");
    return StatementPtr(std::move(statement));
  }

 private:
  const Token& Next(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool Take(TokenKind kind) {
    if (Next().kind != kind) return false;
    ++at_;
    return true;
  }
  Status Unexpected(const std::string& expected) {
    return reporter_.Fail(*line_, Next().column, "expected " + expected + ", found " + DescribeToken(Next()));
  }
  Status Expect(TokenKind kind) { return Take(kind) ? Status::Ok() : Unexpected(DescribeKind(kind)); }

  Status ParseName(std::vector<Name>* side) {
    const Token& token = Next();
    // A string is a name too: what identifiers cannot spell.
    const bool is_string = token.kind == TokenKind::kString;
    if ((!is_string && token.kind != TokenKind::kIdentifier) || token.text.empty()) return Unexpected("a name");
    // Names with it are those of macros.
    if (is_string && token.text.find('#') != std::string::npos)
      return reporter_.Fail(*line_, token.column, "a name may not contain '#'");
    Name name{token.text, token.column, std::nullopt};
    ++at_;
    if (Take(TokenKind::kOpen)) {
      ArrayRange range;
      KINTSUGI_RETURN_IF_ERROR(ParseNumber(&range.begin));
      KINTSUGI_RETURN_IF_ERROR(Expect(TokenKind::kColon));
      KINTSUGI_RETURN_IF_ERROR(ParseNumber(&range.end));
      KINTSUGI_RETURN_IF_ERROR(Expect(TokenKind::kClose));
      name.array = range;
    }
    side->push_back(std::move(name));
    return Status::Ok();
  }

  Status ParseNumber(int64_t* number) {
    *number = Next().number;
    return Expect(TokenKind::kNumber);
  }

  // A right-hand name, a flag or an attribute.
  Status ParseRight(Statement* statement) {
    const Token& token = Next();
    const bool is_word = token.kind == TokenKind::kIdentifier;
    if (is_word && !statement->right.empty() && Next(1).kind == TokenKind::kEqual) return ParseAttribute(statement);
    const bool names_have_ended = !flag_.empty() || !statement->attributes.empty();
    const bool is_macro = macros_ ? macros_->contains(token.text) : names_have_ended && IsPlainWord(token.text);
    if (is_word && !statement->right.empty() && (IsFlag(token.text) || is_macro)) return ParseFlag(statement);
    if (is_word && names_have_ended) {
      if (!statement->attributes.empty()) {
        ++at_;
        return Unexpected("'=' after '" + token.text + "', for attributes have begun");
      }
      return reporter_.Fail(
          *line_, token.column,
          "the name '" + token.text + "' stands behind the flag '" + flag_ + "'; write all names first");
    }
    if (token.kind == TokenKind::kString && names_have_ended)
      return Unexpected("an attribute, for the names have ended");
    return ParseName(&statement->right);
  }

  Status ParseFlag(Statement* statement) {
    const Token& token = Next();
    flag_ = token.text;
    ++at_;
    if (token.text == kStackedFlag || token.text == kOptionalFlag) {
      bool& flag = token.text == kStackedFlag ? statement->stacked : statement->optional;
      if (std::exchange(flag, true))
        return reporter_.Fail(*line_, token.column, "the flag '" + token.text + "' is given twice");
      return Status::Ok();
    }
    if (const auto& before = statement->fused ? statement->fused : statement->user)
      return reporter_.Fail(*line_, token.column, "a second flag '" + token.text + "' after '" + before->text + "'");
    (IsFusedFlag(token.text) ? statement->fused : statement->user) = Name{token.text, token.column, std::nullopt};
    return Status::Ok();
  }

  Status ParseAttribute(Statement* statement) {
    Attribute attribute;
    attribute.name = Next().text;
    attribute.column = Next().column;
    at_ += 2;  // the name and '='
    attribute.value_column = Next().column;
    const Token& token = Next();
    if (token.kind == TokenKind::kNumber) {
      attribute.value = token.number;
    } else if (token.kind == TokenKind::kString) {
      attribute.value = token.text;
    } else if (token.kind != TokenKind::kOpen) {
      return Unexpected("a number, a string or a list");
    }
    ++at_;
    if (token.kind == TokenKind::kOpen) {
      std::vector<int64_t> list;
      KINTSUGI_RETURN_IF_ERROR(ParseListRest(&list));
      attribute.value = std::move(list);
    }
    statement->attributes.push_back(std::move(attribute));
    return Status::Ok();
  }

  Status ParseListRest(std::vector<int64_t>* list) {
    if (Take(TokenKind::kClose)) return Status::Ok();
    do {
      KINTSUGI_RETURN_IF_ERROR(ParseNumber(&list->emplace_back()));
    } while (Take(TokenKind::kComma));
    return Take(TokenKind::kClose) ? Status::Ok() : Unexpected("',' or ']'");
  }

  const std::shared_ptr<const Line> line_;
  const std::vector<Token> tokens_;
  const UserMacros* const macros_;  // null: any word may be one
  Reporter& reporter_;
  size_t at_ = 0;
  std::string flag_;  // the last one
};

}  // namespace

bool IsFusedFlag(const std::string& word) {
  return word == "fused_ffn" || word == "fused_qkv" || word == "fused_qkv_old";
}

bool IsFlag(const std::string& word) { return IsFusedFlag(word) || word == kStackedFlag || word == kOptionalFlag; }

bool IsPlainWord(const std::string& word) {
  return IsIdentifier(word) && word != "_" && word.find_first_of(".$*^-/") == std::string::npos;
}

Result<Statements> ParseProgram(const std::vector<std::string>& entries, Reporter& reporter, const UserMacros* macros) {
  Statements statements;
  for (const std::shared_ptr<const Line>& line : SplitLines(entries)) {
    KINTSUGI_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(*line, reporter));
    if (tokens.size() == 1) continue;
    LineParser parser(line, std::move(tokens), macros, reporter);
    KINTSUGI_ASSIGN_OR_RETURN(StatementPtr statement, parser.Parse());
    statements.push_back(std::move(statement));
  }
  return statements;
}

}  // namespace kintsugi::aoa
