#include "daemon/ring_factory.h"

#include <map>

#include "daemon/device/transport.h"
#include "tests/support/catch.h"

namespace moment {
namespace {

class RegisteringDevice : public device::Device {
 public:
  const std::string& name() const override { return name_; }
  std::string Describe() const override { return name_; }
  bool Supports(device::Profile) const override { return true; }
  device::Profile default_profile() const override { return device::Profile::kTorchCuda; }
  int concurrency() const override { return 1; }
  void Submit(device::ChunkWork*) override {}
  absl::Status RegisterMemory(std::span<std::byte> memory) override {
    registered[memory.data()] = memory.size();
    return absl::OkStatus();
  }
  void UnregisterMemory(std::span<std::byte> memory) override { registered.erase(memory.data()); }

  std::map<const std::byte*, uint64_t> registered;

 private:
  const std::string name_ = "GPU-1";
};

TEST_CASE("Ring factory: slots are registered with the devices while somebody uses the ring",
          "[app]") {
  RegisteringDevice gpu;
  auto ring = RingFactory(3, 64 << 10, {&gpu})();
  REQUIRE(ring.ok());
  const std::shared_ptr<device::Transport> transport = (*ring)->transport();
  REQUIRE(gpu.registered.size() == 3);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    CHECK(gpu.registered[transport->slot(slot).data()] == 64 << 10);
  }
  ring->reset();
  CHECK(gpu.registered.size() == 3);
}

TEST_CASE("Ring factory: the registration ends with the ring", "[app]") {
  RegisteringDevice gpu;
  RingFactory(2, 64 << 10, {&gpu})()->reset();
  CHECK(gpu.registered.empty());
}

}  // namespace
}  // namespace moment
