#pragma once

#include <string>

#include "daemon/cli/console.h"
#include "moment/v1/admin.pb.h"

namespace moment::cli {

// Pins of one store or of several, a row each.
class PinTable {
 public:
  void Add(const std::string& store, const v1::PinSummary& pin);
  // After an empty line; nothing at all without pins.
  void Print(Console& console) const;

 private:
  struct Row {
    std::string store;
    v1::PinSummary pin;
  };
  std::vector<Row> rows_;
};

}  // namespace moment::cli
