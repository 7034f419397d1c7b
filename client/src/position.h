#pragma once

#include <cstdint>
#include <string>

#include "absl/types/optional.h"

namespace moment::client {

// A step: sequence and step_id (16 bytes; zeros at the start of a store).
struct Position {
  uint64_t sequence = 0;
  std::string step_id = std::string(16, '\0');

  bool operator==(const Position& other) const {
    return sequence == other.sequence && step_id == other.step_id;
  }
};

enum class Comparison {
  kSame,       // the store stands where the client does, or at the step in flight: go on
  kRewound,    // the store stands behind the last answered step
  kDifferent,  // neither: someone else has stepped this store
};

// What a reconnect finds: `store` against the last answered step and the one in flight, if any.
Comparison Compare(const Position& store, const Position& answered,
                   const absl::optional<Position>& in_flight);

}  // namespace moment::client
