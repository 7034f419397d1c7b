#include "daemon/session/device_choice.h"

#include <algorithm>
#include <utility>

#include "tests/support/catch.h"

namespace moment::session {
namespace {

class NamedDevice : public device::Device {
 public:
  NamedDevice(std::string name, std::vector<device::Profile> profiles)
      : name_(std::move(name)), profiles_(std::move(profiles)) {}

  const std::string& name() const override { return name_; }
  std::string Describe() const override { return name_; }
  bool Supports(device::Profile profile) const override {
    return std::find(profiles_.begin(), profiles_.end(), profile) != profiles_.end();
  }
  device::Profile default_profile() const override { return profiles_.front(); }
  int concurrency() const override { return 1; }
  void Submit(device::ChunkWork*) override {}

 private:
  const std::string name_;
  const std::vector<device::Profile> profiles_;
};

struct Node {
  NamedDevice host{"host", {device::Profile::kTorchCpu, device::Profile::kTorchCpuIeee}};
  NamedDevice gpu{"GPU-1", {device::Profile::kTorchCuda, device::Profile::kTe}};
  NamedDevice other_gpu{"GPU-2", {device::Profile::kTorchCuda, device::Profile::kTe}};
  std::vector<device::Device*> devices = {&host, &gpu, &other_gpu};
};

TEST_CASE("Device choice: without wishes the host computes its default profile", "[session]") {
  Node node;
  const auto choice = ChooseDevice(node.devices, "", v1::PROFILE_UNSPECIFIED);
  REQUIRE(choice.ok());
  CHECK(choice->device == &node.host);
  CHECK(choice->profile == v1::PROFILE_TORCH_CPU);
}

TEST_CASE("Device choice: buffers on a GPU are computed there, by its default profile",
          "[session]") {
  Node node;
  const auto choice = ChooseDevice(node.devices, "GPU-2", v1::PROFILE_UNSPECIFIED);
  REQUIRE(choice.ok());
  CHECK(choice->device == &node.other_gpu);
  CHECK(choice->profile == v1::PROFILE_TORCH_CUDA);
}

TEST_CASE("Device choice: for buffers on the host, the profile goes to the first that computes it",
          "[session]") {
  Node node;
  for (const std::string buffers : {"", "host"}) {
    CHECK(ChooseDevice(node.devices, buffers, v1::PROFILE_TORCH_CPU_IEEE)->device == &node.host);
    CHECK(ChooseDevice(node.devices, buffers, v1::PROFILE_TE)->device == &node.gpu);
    CHECK(ChooseDevice(node.devices, buffers, v1::PROFILE_UNSPECIFIED)->device == &node.host);
  }
  CHECK(ChooseDevice(node.devices, "GPU-2", v1::PROFILE_TE)->device == &node.other_gpu);
}

TEST_CASE("Device choice: an unknown device is refused, naming those there are", "[session]") {
  Node node;
  const auto choice = ChooseDevice(node.devices, "GPU-3", v1::PROFILE_UNSPECIFIED);
  CHECK(absl::IsInvalidArgument(choice.status()));
  CHECK_THAT(std::string(choice.status().message()),
             test::ContainsSubstring("GPU-3; it has host, GPU-1, GPU-2"));
}

TEST_CASE("Device choice: a profile that nobody here computes is refused by name", "[session]") {
  Node node;
  for (const std::string name : {"", "host"}) {
    const auto choice = ChooseDevice({&node.host}, name, v1::PROFILE_TORCH_CUDA);
    CHECK(absl::IsInvalidArgument(choice.status()));
    CHECK_THAT(std::string(choice.status().message()),
               test::ContainsSubstring("PROFILE_TORCH_CUDA is computed by none"));
  }
  CHECK(
      absl::IsInvalidArgument(ChooseDevice(node.devices, "GPU-1", v1::PROFILE_TORCH_CPU).status()));
}

}  // namespace
}  // namespace moment::session
