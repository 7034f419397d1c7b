#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/device/adam_reference.h"
#include "daemon/device/device.h"

namespace moment::device {

// A device that the conformance suite (device_conformance_test.cc) runs on. A program that links
// the suite defines DevicesUnderTest; memory of the chunks and runs is ordinary host memory.
struct DeviceUnderTest {
  std::string name;
  std::shared_ptr<Device> (*make)() = nullptr;  // a fresh one
  Profile profile = Profile::kTorchCpu;
  // The profile's plain definition of one element's step.
  AdamElement (*reference)(const Hyperparameters& hyperparameters, uint64_t t, float gradient,
                           AdamElement element) = nullptr;
};

std::vector<DeviceUnderTest> DevicesUnderTest();

}  // namespace moment::device
