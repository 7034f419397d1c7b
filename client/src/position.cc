#include "client/src/position.h"

namespace moment::client {

Comparison Compare(const Position& store, const Position& answered,
                   const absl::optional<Position>& in_flight) {
  if (store == answered || (in_flight.has_value() && store == *in_flight)) {
    return Comparison::kSame;
  }
  return store.sequence < answered.sequence ? Comparison::kRewound : Comparison::kDifferent;
}

}  // namespace moment::client
