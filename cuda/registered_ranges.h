#pragma once

#include <cstddef>
#include <map>
#include <span>

namespace moment::cuda {

// Which host memory is registered with the driver. One copy must not reach from one registration
// into another, or out of one.
class RegisteredRanges {
 public:
  void Add(std::span<std::byte> memory) { ends_[memory.data()] = memory.data() + memory.size(); }
  void Remove(std::span<std::byte> memory) { ends_.erase(memory.data()); }

  // Whether both lie in the same registration, or both in none.
  bool Together(const std::byte* a, const std::byte* b) const { return Find(a) == Find(b); }

 private:
  // The begin of the registration that holds it; null if none does.
  const std::byte* Find(const std::byte* address) const {
    auto after = ends_.upper_bound(address);
    if (after == ends_.begin()) {
      return nullptr;
    }
    --after;
    return address < after->second ? after->first : nullptr;
  }

  std::map<const std::byte*, const std::byte*> ends_;  // by begin
};

}  // namespace moment::cuda
