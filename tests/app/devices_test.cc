// Which GPUs the daemon takes, and what it says of them, over simulated settings.
#include "daemon/devices.h"

#include "tests/app/named_device.h"
#include "tests/support/catch.h"

namespace moment {
namespace {

using cuda::ComputeMode;
using cuda::GpuSettings;
using test::ContainsSubstring;

class Machine {
 public:
  explicit Machine(std::vector<GpuSettings> gpus) { survey_.gpus = std::move(gpus); }
  explicit Machine(absl::Status failure) : failure_(std::move(failure)) {}

  absl::StatusOr<std::unique_ptr<Devices>> Open(std::vector<std::string> wanted) {
    config::Config config;
    config.gpus = std::move(wanted);
    config.gpu_staging_bytes = 77;
    config.gpu_slots = 5;
    GpuDoor door;
    door.survey = [this]() -> absl::StatusOr<cuda::GpuSurvey> {
      return failure_.ok() ? absl::StatusOr<cuda::GpuSurvey>(survey_) : failure_;
    };
    door.open = [this](const std::string& uuid, const cuda::CudaDeviceOptions& options)
        -> absl::StatusOr<std::unique_ptr<device::Device>> {
      CHECK(options.staging_bytes == 77);
      CHECK(options.slots == 5);
      auto device = std::make_unique<NamedDevice>(uuid);
      opened.push_back(device.get());
      return device;
    };
    return Devices::Open(config, workers_, door);
  }

  std::vector<NamedDevice*> opened;

 private:
  cuda::GpuSurvey survey_;
  absl::Status failure_;
  base::WorkerPool workers_{1};
};

GpuSettings Gpu(const std::string& uuid, ComputeMode mode = ComputeMode::kDefault) {
  GpuSettings gpu;
  gpu.uuid = uuid;
  gpu.compute_mode = mode;
  return gpu;
}

TEST_CASE("Devices: all GPUs are opened at the start, the host stays first", "[app]") {
  Machine machine({Gpu("GPU-1"), Gpu("GPU-2")});
  const auto devices = machine.Open({"auto"});
  REQUIRE(devices.ok());
  REQUIRE(machine.opened.size() == 2);
  REQUIRE((*devices)->all().size() == 3);
  CHECK((*devices)->all()[0]->name() == "host");
  CHECK((*devices)->gpus() ==
        std::vector<device::Device*>(machine.opened.begin(), machine.opened.end()));
  CHECK((*devices)->notices().empty());
}

TEST_CASE("Devices: a GPU in compute mode EXCLUSIVE_PROCESS is left alone and told of", "[app]") {
  const ComputeMode mode = GENERATE(ComputeMode::kExclusiveProcess, ComputeMode::kProhibited);
  Machine machine({Gpu("GPU-1", mode), Gpu("GPU-2")});
  const auto devices = machine.Open({"auto"});
  REQUIRE(devices.ok());
  REQUIRE(machine.opened.size() == 1);
  CHECK(machine.opened[0]->name() == "GPU-2");
  REQUIRE((*devices)->notices().size() == 1);
  const service::GpuNotice& notice = (*devices)->notices()[0];
  CHECK(notice.uuid == "GPU-1");
  CHECK(notice.setting == "compute-mode");
  CHECK(notice.unused);
  CHECK_THAT(notice.text, ContainsSubstring("nvidia-smi -i GPU-1 -c DEFAULT"));
}

TEST_CASE("Devices: a GPU that is named must be usable", "[app]") {
  Machine machine({Gpu("GPU-1", ComputeMode::kExclusiveProcess)});
  const auto devices = machine.Open({"GPU-1"});
  CHECK(absl::IsFailedPrecondition(devices.status()));
  CHECK_THAT(std::string(devices.status().message()), ContainsSubstring("GPU-1"));
  CHECK_THAT(std::string(devices.status().message()), ContainsSubstring("EXCLUSIVE_PROCESS"));
}

TEST_CASE("Devices: a GPU that is named must be there, and those that are there are told",
          "[app]") {
  Machine machine({Gpu("GPU-1")});
  const auto devices = machine.Open({"GPU-9"});
  CHECK(absl::IsNotFound(devices.status()));
  CHECK_THAT(std::string(devices.status().message()), ContainsSubstring("GPU-9"));
  CHECK_THAT(std::string(devices.status().message()), ContainsSubstring("GPU-1"));
}

TEST_CASE("Devices: under MPS the mode EXCLUSIVE_PROCESS is shared, and MPS is told of", "[app]") {
  GpuSettings gpu = Gpu("GPU-1", ComputeMode::kExclusiveProcess);
  gpu.mps = true;
  Machine machine({gpu});
  const auto devices = machine.Open({"auto"});
  REQUIRE(devices.ok());
  CHECK(machine.opened.size() == 1);
  REQUIRE((*devices)->notices().size() == 1);
  CHECK((*devices)->notices()[0].setting == "mps");
  CHECK_FALSE((*devices)->notices()[0].unused);
}

TEST_CASE("Devices: a MIG instance is used and told of", "[app]") {
  GpuSettings gpu = Gpu("GPU-1");
  gpu.mig = true;
  Machine machine({gpu});
  const auto devices = machine.Open({"auto"});
  REQUIRE(devices.ok());
  CHECK(machine.opened.size() == 1);
  REQUIRE((*devices)->notices().size() == 1);
  CHECK((*devices)->notices()[0].setting == "mig");
}

TEST_CASE("Devices: a GPU under confidential computing is left alone and told of", "[app]") {
  GpuSettings gpu = Gpu("GPU-1");
  gpu.confidential = true;
  Machine machine({gpu});
  const auto devices = machine.Open({"auto"});
  REQUIRE(devices.ok());
  CHECK(machine.opened.empty());
  REQUIRE((*devices)->notices().size() == 1);
  CHECK((*devices)->notices()[0].setting == "confidential");
  CHECK((*devices)->notices()[0].unused);
}

TEST_CASE("Devices: a machine without a GPU is told of, unless one was named or none wanted",
          "[app]") {
  Machine machine(absl::NotFoundError("no NVIDIA driver"));
  const auto devices = machine.Open({"auto"});
  REQUIRE(devices.ok());
  CHECK((*devices)->all().size() == 1);
  REQUIRE((*devices)->notices().size() == 1);
  CHECK((*devices)->notices()[0].setting == "driver");
  CHECK((*devices)->notices()[0].text == "no NVIDIA driver");
  CHECK(absl::IsNotFound(machine.Open({"GPU-1"}).status()));
  const auto none = machine.Open({"none"});
  REQUIRE(none.ok());
  CHECK((*none)->notices().empty());
}

TEST_CASE("Devices: who asks hears which device is lost", "[app]") {
  Machine machine({Gpu("GPU-1"), Gpu("GPU-2")});
  const auto devices = machine.Open({"auto"});
  REQUIRE(devices.ok());
  std::vector<std::string> heard;
  (*devices)->OnLost([&](const std::string& name, const absl::Status& status) {
    heard.push_back(name + ": " + std::string(status.message()));
  });
  machine.opened[1]->lost(absl::UnavailableError("gone"));
  CHECK(heard == std::vector<std::string>{"GPU-2: gone"});
}

}  // namespace
}  // namespace moment
