#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// How a GPU is set up, as far as it matters to who shares it. Plain C++: every build has it.
namespace moment::cuda {

enum class ComputeMode : uint8_t { kDefault, kExclusiveProcess, kProhibited };

struct GpuSettings {
  std::string uuid;  // "GPU-..."
  std::string model;
  ComputeMode compute_mode = ComputeMode::kDefault;
  bool mps = false;           // contexts of this process go through an MPS server
  bool mig = false;           // it is a part of a GPU
  bool confidential = false;  // its memory is out of the host's reach
};

struct GpuSurvey {
  std::string cuda_version;    // that the driver supports: "13.0"
  std::string driver_version;  // "580.159.04"; "" if unknown
  std::string nvml_reason;     // why the management library told nothing; "" if it did
  std::vector<GpuSettings> gpus;
};

// What a setting means for momentd and what to do about it, in a sentence.
struct GpuNote {
  // "compute-mode", "mps", "mig" or "confidential"
  std::string setting;
  bool prevents = false;  // momentd cannot use the GPU together with a trainer
  std::string text;
};

// Empty for a GPU as it comes from the factory.
std::vector<GpuNote> NotesOn(const GpuSettings& gpu);

// The first note that prevents the use of the GPU.
std::optional<GpuNote> WhatPreventsUse(const GpuSettings& gpu);

}  // namespace moment::cuda
