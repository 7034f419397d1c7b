#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace moment::device {

// A piece of a tensor's parameter, gradient or segment buffer, and its place in a slot.
struct TransportRun {
  uint32_t tensor = 0;
  uint64_t tensor_offset_bytes = 0;
  uint64_t length_bytes = 0;
  uint64_t slot_offset_bytes = 0;
  uint32_t segment = 0;  // of kSegments*
};

enum class TransportOp : uint8_t {
  kGradientsIn,
  kParametersIn,
  kParametersOut,
  kSegmentsIn,
  kSegmentsOut,
};

// The caller owns it and its runs until `done` ran.
struct TransportCommand {
  TransportOp op = TransportOp::kGradientsIn;
  uint32_t slot = 0;
  uint64_t binding = 0;  // of kSegments*: which call's buffers are meant
  std::span<const TransportRun> runs;

  // Runs once, on the transport's thread; must not block. ABORTED when the peer is gone,
  // INVALID_ARGUMENT naming the tensor and the buffer that it lacks.
  void (*done)(TransportCommand* command, absl::Status status) noexcept = nullptr;
  void* context = nullptr;

  TransportCommand* next = nullptr;  // the transport's
};

// Brings the trainer's ordinary memory to slots that the device can read, and back. Commands run
// strictly in the order submitted. The caller owns the slots' use: it never has two commands or a
// device's work on one slot at a time. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual uint32_t slot_count() const = 0;
  virtual uint64_t slot_bytes() const = 0;
  virtual uint32_t max_runs() const = 0;  // of one command
  virtual std::span<std::byte> slot(uint32_t index) const = 0;

  virtual void Submit(TransportCommand* command) = 0;
};

}  // namespace moment::device
