#pragma once

#include <liburing.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace moment::io {

// Why the system gave no ring.
struct RingRefusal {
  int error = 0;     // errno
  std::string step;  // "io_uring_setup", ...
};

struct RingOptions {
  uint32_t submission_entries = 64;
  uint32_t completion_entries = 128;
  std::vector<int> held_fds;                  // registered as files of the ring
  std::function<int(uint32_t flags)> refuse;  // a test's errno in place of the set-up; may be empty
};

// Owns one io_uring. Belongs to the thread that opens it: the kernel may allow no other.
class Ring {
 public:
  Ring() = default;
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Sets it up with the best flags that this kernel knows, checks the operations that are needed
  // and makes one round trip, so that what a filter refuses is refused here. False: see `refusal`.
  bool Open(const RingOptions& options, RingRefusal* refusal);

  io_uring* get() { return &ring_; }

 private:
  int SetUp(const RingOptions& options);
  int CheckOperations();
  int RoundTrip();

  io_uring ring_{};
  bool open_ = false;
};

}  // namespace moment::io
