#include "daemon/ring_factory.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/device/memory_registration.h"
#include "daemon/device/ring.h"

namespace moment {
namespace {

using device::RingTransport;

// A transport whose slots are registered with devices.
class RegisteredRing {
 public:
  static absl::StatusOr<std::shared_ptr<RingTransport>> Create(
      const device::RingGeometry& geometry, const std::vector<device::Device*>& devices) {
    auto ring = std::make_shared<RegisteredRing>();
    MOMENT_ASSIGN_OR_RETURN(ring->transport_, RingTransport::Create(geometry));
    for (uint32_t slot = 0; slot < geometry.slots; ++slot) {
      MOMENT_ASSIGN_OR_RETURN(
          device::MemoryRegistration registration,
          device::MemoryRegistration::Create(devices, ring->transport_->slot(slot)));
      ring->registrations_.push_back(std::move(registration));
    }
    return std::shared_ptr<RingTransport>(ring, ring->transport_.get());
  }

 private:
  std::unique_ptr<RingTransport> transport_;
  std::vector<device::MemoryRegistration> registrations_;  // end before the slots do
};

class DeviceRing : public session::Ring {
 public:
  explicit DeviceRing(std::shared_ptr<RingTransport> transport)
      : transport_(std::move(transport)) {}

  std::shared_ptr<device::Transport> transport() override { return transport_; }

  absl::StatusOr<std::vector<base::UniqueFd>> Descriptors() override {
    std::vector<base::UniqueFd> descriptors;
    for (const int owned : transport_->descriptors()) {
      base::UniqueFd copy(::fcntl(owned, F_DUPFD_CLOEXEC, 0));
      if (!copy.valid()) {
        return base::ErrnoStatus(errno, "duplicate a descriptor of", "the ring");
      }
      descriptors.push_back(std::move(copy));
    }
    return descriptors;
  }

  absl::Status WatchPeer(const base::UniqueFd& pidfd) override {
    return transport_->WatchPeer(pidfd.get());
  }
  void SetGeneration(uint64_t generation) override { transport_->SetGeneration(generation); }
  void Close(const absl::Status& reason) override { transport_->Close(reason); }

 private:
  const std::shared_ptr<RingTransport> transport_;
};

}  // namespace

session::MakeRing RingFactory(uint32_t slots, uint64_t slot_bytes,
                              const std::vector<device::Device*>& devices) {
  device::RingGeometry geometry;
  geometry.slots = slots;
  geometry.slot_bytes = base::RoundUp(slot_bytes, base::kIoAlignment);
  return [geometry, devices]() -> absl::StatusOr<std::unique_ptr<session::Ring>> {
    MOMENT_ASSIGN_OR_RETURN(std::shared_ptr<RingTransport> transport,
                            RegisteredRing::Create(geometry, devices));
    return std::make_unique<DeviceRing>(std::move(transport));
  };
}

}  // namespace moment
