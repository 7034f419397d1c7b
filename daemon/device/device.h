#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "daemon/device/memory_importer.h"
#include "daemon/device/types.h"

namespace moment::device {

inline constexpr int kSegmentCount = 3;
enum Segment : int { kMain = 0, kExpAvg = 1, kExpAvgSq = 2 };

// Host memory of one chunk's segments: data[s] holds `elements` of types[s], aligned to 4096.
struct ChunkView {
  std::byte* data[kSegmentCount] = {};
};

// Where a pointer of a run points.
enum class Place : uint8_t {
  kHost,
  kDevice,  // memory of the GPU that computes
};

// Consecutive elements of one tensor within a chunk, with the trainer's memory for them.
struct Run {
  uint32_t tensor = 0;           // store index
  uint32_t hyperparameters = 0;  // index into ChunkWork::hyperparameters
  uint64_t first = 0;            // element within the chunk
  uint64_t count = 0;
  uint64_t t = 0;            // Adam's step of this tensor, after its increment
  bool participates = true;  // false: Adam copies the state along and leaves the parameter alone
  // Readable and writable by the device; elements `first...` of the run itself (not of the tensor).
  const void* gradient = nullptr;
  void* parameter = nullptr;
  DataType gradient_type = DataType::kFloat32;
  DataType parameter_type = DataType::kFloat32;
  Place gradient_place = Place::kHost;
  Place parameter_place = Place::kHost;
  // kRead and kWrite: the trainer's memory of each segment, on the host, likewise; null: it is left
  // alone.
  void* buffers[kSegmentCount] = {};
  DataType buffer_types[kSegmentCount] = {};
};

enum class ChunkOp : uint8_t {
  kAdam,         // state in -> state out, parameters written
  kRefresh,      // parameters -> mains of participating runs; moments copied along
  kMaterialize,  // mains -> parameters; nothing out
  kRead,         // segments -> buffers of participating runs; nothing out
  kWrite,        // buffers -> segments of participating runs; segments without one copied along
};

// The operation leaves the state as it is.
constexpr bool OnlyReads(ChunkOp op) { return op == ChunkOp::kMaterialize || op == ChunkOp::kRead; }

// One chunk's work. The caller owns it and all it points to until `done` ran.
struct ChunkWork {
  ChunkOp op = ChunkOp::kAdam;
  Profile profile = Profile::kTorchCpu;
  DataType segment_types[kSegmentCount] = {};
  uint64_t elements = 0;  // of the chunk, pads included
  ChunkView in;
  ChunkView out;  // may be `in` (in place)
  // exp_avg and exp_avg_sq of `in` count as zero and are not read.
  bool moments_zero = false;
  // The mains of `in` are nothing: kRefresh takes every one from its parameter. Otherwise one whose
  // cast has the parameter's bits stays.
  bool mains_fresh = false;
  std::span<const Run> runs;
  std::span<const Hyperparameters> hyperparameters;

  // Runs once, on a thread of the device; must not block.
  void (*done)(ChunkWork* work, absl::Status status) noexcept = nullptr;
  void* context = nullptr;
  double seconds = 0;  // the device's own time for it, set before `done`

  // The device's own.
  void* state = nullptr;
};

// What a GPU's device takes of the GPU's memory, whatever the size of the stores.
struct DeviceMemoryUse {
  std::optional<uint64_t> context_bytes;  // the driver's own, as far as it can be told
  uint64_t staging_bytes = 0;             // what chunks pass through
  uint64_t staging_used_bytes = 0;        // of it, by chunks in work now
};

// Runs the arithmetic. Thread-safe. Elements of `out` that no run covers (pads) are copied from
// `in`.
class Device {
 public:
  virtual ~Device() = default;  // waits for everything submitted

  // "host", or a GPU's UUID.
  virtual const std::string& name() const = 0;
  // One sentence for status: instruction set, or GPU model and context.
  virtual std::string Describe() const = 0;
  virtual bool Supports(Profile profile) const = 0;
  virtual Profile default_profile() const = 0;
  // How many chunks it works on at a time.
  virtual int concurrency() const = 0;

  virtual void Submit(ChunkWork* work) = 0;

  // `lost` runs once, on a thread of the device's, when no work of this process will succeed on it
  // any more; every chunk then ends with UNAVAILABLE. It must not block. Set before any work.
  virtual void OnLost(std::function<void(const absl::Status&)> lost) { static_cast<void>(lost); }

  // nullopt for a device without memory of its own.
  virtual std::optional<DeviceMemoryUse> MemoryUse() const { return std::nullopt; }

  // Host memory that chunks and runs will lie in until it is unregistered: a GPU pins it, and
  // copies run at full speed. Memory that is not registered works too, slowly. `memory` is aligned
  // to 4096; no chunk may be in work when it is unregistered.
  virtual absl::Status RegisterMemory(std::span<std::byte> memory) {
    static_cast<void>(memory);
    return absl::OkStatus();
  }
  virtual void UnregisterMemory(std::span<std::byte> memory) { static_cast<void>(memory); }

  // Opens memory that trainers share; null if the device shares none.
  virtual MemoryImporter* importer() { return nullptr; }
};

}  // namespace moment::device
