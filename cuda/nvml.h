#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace moment::cuda {

// NVIDIA's management library (libnvidia-ml.so.1), loaded at run time: it tells what the driver's
// own interface does not. Containers may lack it, and each of its answers. Thread-safe.
class Nvml {
 public:
  // NOT_FOUND without the library, UNAVAILABLE where it does not initialise. The first call decides
  // for the process.
  static absl::StatusOr<const Nvml*> Load();
  // From this file, which tests choose.
  static absl::StatusOr<std::unique_ptr<Nvml>> LoadFrom(const std::string& file);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::optional<std::string> DriverVersion() const;
  std::optional<bool> Confidential() const;
  // Memory of the GPU that is in use by all, its own reserve included.
  std::optional<uint64_t> UsedBytes(const std::string& uuid) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  std::unique_ptr<Functions> functions_;
};

}  // namespace moment::cuda
