#include "cuda/gpu_settings.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace moment::cuda {
namespace {

// Under MPS all contexts are one server's: EXCLUSIVE_PROCESS is then how it is set up, and the
// trainer and the daemon share the GPU through the server.
void AddComputeMode(const GpuSettings& gpu, std::vector<GpuNote>& notes) {
  const std::string remedy =
      absl::StrCat("set it to DEFAULT (nvidia-smi -i ", gpu.uuid, " -c DEFAULT)");
  if (gpu.compute_mode == ComputeMode::kProhibited) {
    notes.push_back({"compute-mode", true,
                     absl::StrCat("compute mode PROHIBITED lets no process use it: ", remedy)});
  } else if (gpu.compute_mode == ComputeMode::kExclusiveProcess && !gpu.mps) {
    notes.push_back({"compute-mode", true,
                     absl::StrCat("compute mode EXCLUSIVE_PROCESS lets either the trainer or "
                                  "momentd use it, not both: ",
                                  remedy)});
  }
}

}  // namespace

std::vector<GpuNote> NotesOn(const GpuSettings& gpu) {
  std::vector<GpuNote> notes;
  AddComputeMode(gpu, notes);
  if (gpu.confidential) {
    notes.push_back(
        {"confidential", true,
         "confidential computing is on, under which the driver neither pins host memory "
         "of others nor shares GPU memory between processes: compute on the host (gpu "
         "= none), or turn it off"});
  }
  if (gpu.mps) {
    notes.push_back(
        {"mps", false,
         "it is reached through MPS, where a fault of one process ends the others: "
         "momentd then commits and exits with 8; run it beside a trainer without MPS if "
         "that matters"});
  }
  if (gpu.mig) {
    notes.push_back({"mig", false,
                     "it is a MIG instance: momentd has this one alone, so give it the "
                     "instance of its trainer, and one daemon to each instance"});
  }
  return notes;
}

std::optional<GpuNote> WhatPreventsUse(const GpuSettings& gpu) {
  for (GpuNote& note : NotesOn(gpu)) {
    if (note.prevents) {
      return std::move(note);
    }
  }
  return std::nullopt;
}

}  // namespace moment::cuda
