#pragma once

#include <atomic>
#include <thread>

#include "daemon/base/fd.h"
#include "daemon/cli/cancellation.h"

namespace moment::cli {

// Turns the first SIGINT or SIGTERM into Cancel(); a second one ends the process at once, as it
// would have without us. Make it before any other thread: it blocks both signals in the calling
// thread, and later threads inherit that.
class SignalWatcher {
 public:
  explicit SignalWatcher(Cancellation& cancellation);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // The signal that came; 0 for none.
  int signal() const { return signal_; }

 private:
  void Watch();

  Cancellation& cancellation_;
  std::atomic<int> signal_ = 0;
  base::UniqueFd signals_;  // signalfd
  base::UniqueFd stop_;     // eventfd
  std::thread thread_;
};

// Ends the process by `signal`, so that the shell sees what ended it.
[[noreturn]] void DieBySignal(int signal);

}  // namespace moment::cli
