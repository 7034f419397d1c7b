#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/store/store.h"

namespace moment::cli {

// A state directory with real stores in it, made through the Store's own interface: the first
// filling at sequence 0, then `steps` commits. Everything is closed when a function returns.
class SmallState {
 public:
  explicit SmallState(std::string state_directory);

  // Its directory. Throws what went wrong.
  std::string MakeStore(const v1::StoreName& name, uint64_t steps);

  const std::string& state_directory() const { return state_directory_; }

 private:
  void Change(store::Store& store, uint64_t sequence);

  std::string state_directory_;
  std::unique_ptr<io::FileSystem> files_;
  std::unique_ptr<io::IoEngine> engine_;
};

}  // namespace moment::cli
