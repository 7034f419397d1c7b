#include "daemon/cli/units.h"

#include <cmath>
#include <limits>

#include "tests/support/catch.h"

namespace moment::cli {
namespace {

TEST_CASE("HumanBytes: binary units with one decimal", "[cli]") {
  CHECK(HumanBytes(0) == "0 B");
  CHECK(HumanBytes(1023) == "1023 B");
  CHECK(HumanBytes(1024) == "1.0 KiB");
  CHECK(HumanBytes(48ull << 20) == "48.0 MiB");
  CHECK(HumanBytes(std::numeric_limits<uint64_t>::max()) == "16.0 EiB");
}

TEST_CASE("HumanBytes: what rounds up to 1024 is shown in the next unit", "[cli]") {
  CHECK(HumanBytes((1ull << 20) - 1) == "1.0 MiB");
  CHECK(HumanBytes((1ull << 30) - 1) == "1.0 GiB");
}

TEST_CASE("HumanRate: a rate that is not known is a dash", "[cli]") {
  CHECK(HumanRate(1024.0 * 1024) == "1.0 MiB/s");
  CHECK(HumanRate(0) == "-");
  CHECK(HumanRate(std::numeric_limits<double>::infinity()) == "-");
  CHECK(HumanRate(std::nan("")) == "-");
}

TEST_CASE("HumanSeconds: the two largest units", "[cli]") {
  CHECK(HumanSeconds(0) == "0 ms");
  CHECK(HumanSeconds(0.35) == "350 ms");
  CHECK(HumanSeconds(0.9999) == "1.0 s");
  CHECK(HumanSeconds(4.21) == "4.2 s");
  CHECK(HumanSeconds(59.96) == "1m 00s");
  CHECK(HumanSeconds(185) == "3m 05s");
  CHECK(HumanSeconds(7620) == "2h 07m");
  CHECK(HumanSeconds(3 * 86400 + 4 * 3600) == "3d 04h");
  CHECK(HumanSeconds(-1) == "-");
  CHECK(HumanSeconds(std::nan("")) == "-");
}

TEST_CASE("HumanCount: groups of three digits", "[cli]") {
  CHECK(HumanCount(0) == "0");
  CHECK(HumanCount(999) == "999");
  CHECK(HumanCount(1000) == "1,000");
  CHECK(HumanCount(200'000'000) == "200,000,000");
}

TEST_CASE("HumanMagnitude: decimal units", "[cli]") {
  CHECK(HumanMagnitude(999) == "999");
  CHECK(HumanMagnitude(1'234'567) == "1.2 M");
  CHECK(HumanMagnitude(999'960) == "1.0 M");
  CHECK(HumanMagnitude(70'000'000'000) == "70.0 G");
}

TEST_CASE("HumanTime: UTC, and a dash for never", "[cli]") {
  CHECK(HumanTime(0) == "-");
  CHECK(HumanTime(1'740'830'400'000'000'000) == "2025-03-01 12:00:00");
}

TEST_CASE("Printable: what a terminal would obey is escaped", "[cli]") {
  CHECK(Printable("job/model/0") == "job/model/0");
  CHECK(Printable("\x1b[31mred") == "\\x1b[31mred");
  CHECK(Printable("a\nb\x7f") == "a\\x0ab\\x7f");
  // U+009B is a control sequence introducer too.
  CHECK(Printable("\xc2\x9b"
                  "1m") == "\\xc2\\x9b1m");
}

TEST_CASE("Printable: characters stay, bytes that are not UTF-8 are escaped", "[cli]") {
  CHECK(Printable("日本 ü") == "日本 ü");
  CHECK(Printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(Printable("\xc0\xaf") == "\\xc0\\xaf");           // overlong
  CHECK(Printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // surrogate
  CHECK(Printable("\xe6\x97") == "\\xe6\\x97");           // cut short
}

TEST_CASE("DisplayWidth: counts characters, not bytes", "[cli]") {
  CHECK(DisplayWidth("abc") == 3);
  CHECK(DisplayWidth("ü…") == 2);
  CHECK(DisplayWidth("") == 0);
}

}  // namespace
}  // namespace moment::cli
