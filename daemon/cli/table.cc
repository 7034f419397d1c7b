#include "daemon/cli/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/cli/units.h"
#include "daemon/cli/utf8.h"

namespace moment::cli {
namespace {

constexpr uint64_t kTerminalCellWidth = 60;

uint64_t BytesOfCharacters(absl::string_view text, uint64_t characters) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < characters && bytes < text.size(); ++i) {
    const uint64_t length = Utf8Length(text.substr(bytes));
    bytes += length == 0 ? 1 : length;
  }
  return bytes;
}

std::string Shown(const Console& console, const Cell& cell) {
  std::string text = Printable(cell.text);
  return console.out_is_terminal ? Shorten(text, kTerminalCellWidth) : text;
}

std::string Padded(const Console& console, absl::string_view shown, Colour colour, Align align,
                   uint64_t width) {
  const uint64_t used = DisplayWidth(shown);
  const std::string blanks(width > used ? width - used : 0, ' ');
  const std::string painted = Paint(console, colour, shown);
  return align == Align::kLeft ? absl::StrCat(painted, blanks) : absl::StrCat(blanks, painted);
}

}  // namespace

std::string Shorten(absl::string_view printable, uint64_t width) {
  const uint64_t total = DisplayWidth(printable);
  if (total <= width || width == 0) {
    return std::string(printable);
  }
  const uint64_t head = width / 2;
  const uint64_t tail = width - 1 - head;
  const uint64_t tail_begin = BytesOfCharacters(printable, total - tail);
  return absl::StrCat(printable.substr(0, BytesOfCharacters(printable, head)), "…",
                      printable.substr(tail_begin));
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<Cell> cells) {
  cells.resize(columns_.size(), Cell(""));
  rows_.push_back(std::move(cells));
}

std::vector<std::vector<Cell>> Table::ShownRows(const Console& console) const {
  std::vector<std::vector<Cell>> shown(1);
  for (const Column& column : columns_) {
    shown.back().emplace_back(column.title, Colour::kBold);
  }
  for (const std::vector<Cell>& row : rows_) {
    shown.emplace_back();
    for (const Cell& cell : row) {
      shown.back().emplace_back(Shown(console, cell), cell.colour);
    }
  }
  return shown;
}

void Table::Print(Console& console) const {
  if (rows_.empty()) {
    return;
  }
  const std::vector<std::vector<Cell>> shown = ShownRows(console);
  std::vector<uint64_t> widths(columns_.size(), 0);
  for (const std::vector<Cell>& row : shown) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i].text));
    }
  }
  for (const std::vector<Cell>& row : shown) {
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      // No blanks at the end of a line.
      const uint64_t width = last && columns_[i].align == Align::kLeft ? 0 : widths[i];
      console.out << Padded(console, row[i].text, row[i].colour, columns_[i].align, width)
                  << (last ? "\n" : "  ");
    }
  }
}

void Facts::Add(std::string label, std::string value, Colour colour) {
  rows_.push_back({Cell(std::move(label)), Cell(std::move(value), colour)});
}

void Facts::Print(Console& console) const {
  uint64_t width = 0;
  for (const std::vector<Cell>& row : rows_) {
    width = std::max(width, DisplayWidth(row[0].text));
  }
  for (const std::vector<Cell>& row : rows_) {
    console.out << Padded(console, row[0].text, Colour::kBold, Align::kLeft, width + 2)
                << Paint(console, row[1].colour, Printable(row[1].text)) << "\n";
  }
}

}  // namespace moment::cli
