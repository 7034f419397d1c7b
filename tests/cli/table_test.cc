#include "daemon/cli/table.h"

#include "tests/cli/capture.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

std::string Printed(const Table& table, Capture& capture) {
  table.Print(capture.console);
  return capture.out.str();
}

TEST_CASE("Table: columns are as wide as their widest cell, two blanks apart", "[cli]") {
  Table table({{"NAME"}, {"SIZE", Align::kRight}, {"STATE"}});
  table.AddRow({"a", "1 B", "ok"});
  table.AddRow({"longer", "12 KiB", "-"});
  Capture capture;
  CHECK(Printed(table, capture) ==
        "NAME      SIZE  STATE\n"
        "a          1 B  ok\n"
        "longer  12 KiB  -\n");
}

TEST_CASE("Table: one without rows prints nothing", "[cli]") {
  Capture capture;
  CHECK(Printed(Table({{"NAME"}}), capture).empty());
}

TEST_CASE("Table: characters of several bytes count as one", "[cli]") {
  Table table({{"N"}, {"X"}});
  table.AddRow({"üü", "1"});
  table.AddRow({"abc", "2"});
  Capture capture;
  CHECK(Printed(table, capture) == "N    X\nüü   1\nabc  2\n");
}

TEST_CASE("Table: control characters of a cell cannot reach the terminal", "[cli]") {
  Table table({{"N"}});
  table.AddRow({"a\x1b[2J\n"});
  Capture capture;
  CHECK(Printed(table, capture) == "N\na\\x1b[2J\\x0a\n");
}

TEST_CASE("Table: missing cells are blank", "[cli]") {
  Table table({{"A"}, {"B"}});
  table.AddRow({"x"});
  Capture capture;
  CHECK(Printed(table, capture) == "A  B\nx  \n");
}

TEST_CASE("Table: a long cell is shortened on a terminal only", "[cli]") {
  Table table({{"N"}});
  table.AddRow({std::string(1000, 'n')});
  Capture pipe;
  CHECK(Printed(table, pipe).size() == 2 + 1000 + 1);
  Capture terminal;
  terminal.console.out_is_terminal = true;
  CHECK(Printed(table, terminal).find("n…n") != std::string::npos);
}

TEST_CASE("Table: colour does not move the columns", "[cli]") {
  Table table({{"A"}, {"B"}});
  table.AddRow({Cell("x", Colour::kRed), "y"});
  Capture capture;
  capture.console.colour = true;
  CHECK(Printed(table, capture) ==
        "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n"
        "\x1b[31mx\x1b[0m  y\n");
}

TEST_CASE("Facts: values are aligned", "[cli]") {
  Facts facts;
  facts.Add("a", "1");
  facts.Add("long label", "2");
  Capture capture;
  facts.Print(capture.console);
  CHECK(capture.out.str() == "a           1\nlong label  2\n");
}

TEST_CASE("Shorten: keeps head and tail within the width", "[cli]") {
  CHECK(Shorten("abcdefgh", 8) == "abcdefgh");
  CHECK(Shorten("abcdefghi", 8) == "abcd…ghi");
  CHECK(Shorten("ääääää", 3) == "ä…ä");
  CHECK(Shorten("abc", 1) == "…");
}

}  // namespace
}  // namespace moment::cli
