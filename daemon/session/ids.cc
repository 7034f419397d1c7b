#include "daemon/session/ids.h"

#include <sys/random.h>

#include <cerrno>

#include <cstdio>
#include <cstdlib>

namespace moment::session {

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t got = ::getrandom(bytes.data() + filled, count - filled, 0);
    if (got > 0) {
      filled += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      // Without random numbers no token keeps strangers out.
      std::perror("momentd: getrandom");
      std::abort();
    }
  }
  return bytes;
}

bool EqualInConstantTime(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) {
    return false;
  }
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(a[i] ^ b[i]) & 0xffu;
  }
  return difference == 0;
}

}  // namespace moment::session
