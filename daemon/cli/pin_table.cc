#include "daemon/cli/pin_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/cli/table.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

std::string AgeOf(const v1::PinSummary& pin) {
  const absl::Duration age = absl::Now() - absl::FromUnixNanos(pin.unix_time_ns());
  return HumanSeconds(std::max(0.0, absl::ToDoubleSeconds(age)));
}

}  // namespace

void PinTable::Add(const std::string& store, const v1::PinSummary& pin) {
  rows_.push_back({store, pin});
}

void PinTable::Print(Console& console) const {
  if (rows_.empty()) {
    return;
  }
  Table table({{"PIN"},
               {"STORE"},
               {"SEQUENCE", Align::kRight},
               {"PID", Align::kRight},
               {"PROGRAM"},
               {"AGE", Align::kRight},
               {"SIZE", Align::kRight},
               {"HELD", Align::kRight}});
  for (const Row& row : rows_) {
    const v1::PinSummary& pin = row.pin;
    if (!pin.problem().empty()) {
      table.AddRow({pin.id(), row.store, "-", "-", Cell(pin.problem(), Colour::kYellow), "-",
                    HumanBytes(pin.size_bytes()), HumanBytes(pin.held_bytes())});
      continue;
    }
    table.AddRow({pin.id(), row.store, absl::StrCat(pin.sequence()),
                  absl::StrCat(pin.owner().pid()), pin.owner().program(), AgeOf(pin),
                  HumanBytes(pin.size_bytes()), HumanBytes(pin.held_bytes())});
  }
  console.out << "\n";
  table.Print(console);
}

}  // namespace moment::cli
