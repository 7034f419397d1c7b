#include "daemon/io/simulated_disk.h"

#include <utility>

#include "daemon/io/simulated_engine.h"
#include "daemon/io/simulated_file_system.h"
#include "daemon/io/simulated_state.h"

namespace moment::io {

class SimulatedDisk::Impl {
 public:
  explicit Impl(std::shared_ptr<SimulatedState> given)
      : state(std::move(given)), files(state), engine(state) {}

  const std::shared_ptr<SimulatedState> state;
  SimulatedFileSystem files;
  SimulatedEngine engine;  // ends first: its transfers may use all else
};

SimulatedDisk::SimulatedDisk(const SimulatedFaults& faults)
    : SimulatedDisk(std::make_unique<Impl>(std::make_shared<SimulatedState>(faults))) {}

SimulatedDisk::SimulatedDisk(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SimulatedDisk::~SimulatedDisk() = default;

FileSystem& SimulatedDisk::files() { return impl_->files; }

IoEngine& SimulatedDisk::engine() { return impl_->engine; }

uint64_t SimulatedDisk::operations() const { return impl_->state->operations(); }

void SimulatedDisk::CutPowerBefore(uint64_t operation) { impl_->state->CutPowerBefore(operation); }

void SimulatedDisk::RestorePower() { impl_->state->RestorePower(); }

bool SimulatedDisk::power_is_off() const { return impl_->state->power_is_off(); }

void SimulatedDisk::FailNext(IoOp op, const std::string& substring, absl::Status status) {
  impl_->state->FailNext(op, substring, std::move(status));
}

void SimulatedDisk::Hold() { impl_->engine.Hold(); }

void SimulatedDisk::Release() { impl_->engine.Release(); }

uint64_t SimulatedDisk::held_transfers() const { return impl_->engine.held_transfers(); }

std::unique_ptr<SimulatedDisk> SimulatedDisk::AfterCrash(uint64_t choice) const {
  auto impl = std::make_unique<Impl>(impl_->state->AfterCrash(choice));
  return std::unique_ptr<SimulatedDisk>(new SimulatedDisk(std::move(impl)));
}

uint64_t SimulatedDisk::unsynced_changes() const { return impl_->state->unsynced_changes(); }

void SimulatedDisk::Corrupt(const std::string& path,
                            const std::function<void(std::vector<std::byte>&)>& edit) {
  absl::MutexLock lock(&impl_->state->mutex);
  const InodePtr inode = impl_->state->tree().Find(path);
  if (inode == nullptr || inode->directory) {
    return;
  }
  std::vector<std::byte> bytes(inode->content.size());
  inode->content.Read(0, bytes);
  edit(bytes);
  inode->content.Replace(bytes);
}

}  // namespace moment::io
