#include "client/src/process.h"

#include <errno.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "absl/strings/escaping.h"
#include "client/src/errors.h"

namespace moment::client {
namespace {

std::atomic<bool> forked_after_use{false};

void InChild() { forked_after_use.store(true, std::memory_order_relaxed); }

}  // namespace

absl::Status CheckNotForked() {
  static std::once_flag once;
  if (forked_after_use.load(std::memory_order_relaxed)) {
    return ForkedError();
  }
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, InChild); });
  return absl::OkStatus();
}

ProcessOwner::ProcessOwner() : pid_(::getpid()) {}

bool ProcessOwner::mine() const { return pid_ == ::getpid(); }

std::string RandomBytes16() {
  std::string bytes(16, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got > 0) {
      filled += static_cast<size_t>(got);
    }
  }
  return bytes;
}

std::string Hex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string ProgramName() { return program_invocation_short_name; }

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

}  // namespace moment::client
