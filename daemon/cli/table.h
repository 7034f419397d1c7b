#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/cli/console.h"

namespace moment::cli {

enum class Align : uint8_t { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

struct Cell {
  // NOLINTNEXTLINE(google-explicit-constructor): rows are written as lists of texts.
  Cell(std::string cell_text, Colour cell_colour = Colour::kNone)
      : text(std::move(cell_text)), colour(cell_colour) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Cell(const char* cell_text) : text(cell_text) {}

  std::string text;
  Colour colour = Colour::kNone;
};

// Aligned columns, two blanks apart, titles above. Cells are made printable; on a terminal a long
// cell is shortened in its middle, elsewhere everything is printed whole.
class Table {
 public:
  explicit Table(std::vector<Column> columns);

  void AddRow(std::vector<Cell> cells);  // one a column
  bool empty() const { return rows_.empty(); }
  // Nothing at all for a table without rows.
  void Print(Console& console) const;

 private:
  // Titles first; cells as they are printed, unpadded.
  std::vector<std::vector<Cell>> ShownRows(const Console& console) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// "label   value" lines, the values aligned.
class Facts {
 public:
  void Add(std::string label, std::string value, Colour colour = Colour::kNone);
  void Print(Console& console) const;

 private:
  std::vector<std::vector<Cell>> rows_;
};

// At most `width` characters: the middle gives way to "…".
std::string Shorten(absl::string_view printable, uint64_t width);

}  // namespace moment::cli
