#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "daemon/device/device.h"

namespace moment {

// A device that computes nothing: for what is done with devices, not by them.
class NamedDevice : public device::Device {
 public:
  explicit NamedDevice(std::string name) : name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  std::string Describe() const override { return "of a test"; }
  bool Supports(device::Profile) const override { return true; }
  device::Profile default_profile() const override { return device::Profile::kTorchCuda; }
  int concurrency() const override { return 1; }
  void Submit(device::ChunkWork*) override {}
  void OnLost(std::function<void(const absl::Status&)> handler) override {
    lost = std::move(handler);
  }

  std::function<void(const absl::Status&)> lost;

 private:
  const std::string name_;
};

}  // namespace moment
