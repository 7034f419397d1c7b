#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/config/options.h"

namespace moment {

// Owns every part of the daemon; its start and stop order are here. Used by one thread.
class App {
 public:
  // Everything is up and listening when it returns.
  static absl::StatusOr<std::unique_ptr<App>> Start(const config::Config& config);
  ~App();

  // Stops accepting, finishes or drops running steps within the drain time, commits, and closes
  // all. An error says what was not committed.
  absl::Status Stop();

  // Becomes readable when a device is lost for this process: what is applied can still be
  // committed, by Stop, and then the process must end.
  int lost_fd() const;

 private:
  class Parts;
  explicit App(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

// The program: configuration, signals, App. Returns the exit code.
int RunDaemon(const std::vector<std::string>& arguments,
              const std::vector<std::string>& environment);

}  // namespace moment
