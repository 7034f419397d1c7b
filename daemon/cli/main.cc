#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/cli/command.h"
#include "daemon/cli/signal_watcher.h"

int main(int argc, char** argv) {
  // gRPC's own log lines would stand between ours; what went wrong comes back as a status.
  ::setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  moment::cli::Console console = moment::cli::ProcessConsole();
  moment::cli::Cancellation cancellation;
  moment::cli::Context context{console, cancellation};
  int code = 0;
  int signal = 0;
  {
    const moment::cli::SignalWatcher watcher(cancellation);
    code = moment::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), context);
    signal = watcher.signal();
  }
  if (signal != 0) {
    moment::cli::DieBySignal(signal);
  }
  return code;
}
