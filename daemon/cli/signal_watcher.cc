#include "daemon/cli/signal_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>

namespace moment::cli {
namespace {

sigset_t WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

SignalWatcher::SignalWatcher(Cancellation& cancellation) : cancellation_(cancellation) {
  const sigset_t signals = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_.Reset(::signalfd(-1, &signals, SFD_CLOEXEC));
  stop_.Reset(::eventfd(0, EFD_CLOEXEC));
  if (signals_.valid() && stop_.valid()) {
    thread_ = std::thread([this] { Watch(); });
  } else {
    // No descriptors left to watch with: the signals keep their ordinary effect.
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
}

SignalWatcher::~SignalWatcher() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    // An eventfd that was just made takes a 1.
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
}

void SignalWatcher::Watch() {
  while (true) {
    pollfd polled[] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                       {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (::poll(polled, 2, -1) < 0) {
      continue;  // EINTR
    }
    if (polled[1].revents != 0) {
      return;
    }
    signalfd_siginfo info = {};
    if (::read(signals_.get(), &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) {
      continue;
    }
    const int arrived = static_cast<int>(info.ssi_signo);
    if (signal_.exchange(arrived) != 0) {
      DieBySignal(arrived);
    }
    cancellation_.Cancel();
  }
}

void DieBySignal(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  std::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace moment::cli
