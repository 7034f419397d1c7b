#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/io/engine_hooks.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/io/simulated_disk.h"
#include "tests/io/io_test_support.h"

namespace moment::io {

struct SubjectOptions {
  uint32_t depth = 32;
  uint32_t threads = 4;
  EngineHooks hooks;       // real engines
  SimulatedFaults faults;  // the simulated one
};

// One of the three engines with a place for files: what the conformance suite runs on.
class Subject {
 public:
  explicit Subject(const std::string& kind, const SubjectOptions& options = {});

  bool simulated() const { return disk_ != nullptr; }
  FileSystem& files() { return disk_ != nullptr ? disk_->files() : *posix_files_; }
  IoEngine& engine() { return disk_ != nullptr ? disk_->engine() : *engine_; }
  std::string Path(const std::string& name) const;
  // The simulated disk; only where simulated().
  SimulatedDisk& disk() { return *disk_; }
  // Ends a real engine, which waits for its transfers.
  void EndEngine() { engine_.reset(); }

  // A file with these bytes, opened again in the wanted way.
  std::unique_ptr<File> FileWith(const std::string& name, const std::byte* bytes,
                                 uint64_t length_bytes, bool direct);
  // Behind the engine's back.
  void Truncate(const std::string& name, uint64_t length_bytes);

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<FileSystem> posix_files_;
  std::unique_ptr<IoEngine> engine_;
  std::unique_ptr<SimulatedDisk> disk_;
};

// "threads", and "io_uring" where this system grants it (a warning says when it does not).
const std::vector<std::string>& RealKinds();
// And "simulated".
const std::vector<std::string>& AllKinds();

}  // namespace moment::io
