// Table: rows of text in aligned columns, for people at a terminal.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace kintsugi::reshard {

class Table {
 public:
  explicit Table(std::vector<std::string> head) { Add(std::move(head)); }
  // REQUIRES: as many cells as the head has.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  size_t rows() const { return rows_.size() - 1; }

  std::string ToText() const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) line += "  " + row[i] + std::string(widths[i] - Width(row[i]), ' ');
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  // Characters, not bytes: numbers are written with no-break spaces.
  static size_t Width(const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kintsugi::reshard
