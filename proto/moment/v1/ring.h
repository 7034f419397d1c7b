#pragma once

// The ring: how bytes of the trainer's ordinary memory reach the daemon and come back.
//
// The daemon owns everything here: two sealed memfds (control and slots; F_SEAL_SHRINK, F_SEAL_GROW
// and F_SEAL_SEAL before they are passed) and two eventfds, handed to the client over fd.sock. The
// daemon drives. It writes a command into entry `issued % slots`, then raises `issued` (release)
// and signals the client's eventfd; the client executes strictly in order, raises `completed`
// (release) and signals the daemon's eventfd. There are never more commands outstanding than slots.
// The client may write anything at any time: the daemon copies what it reads, checks it, and trusts
// only its own counters.
//
// control memfd: RingHeader, then `slots` x RingCommand, then `slots` x `max_runs` x RingRun.
// slots memfd:   `slots` x `slot_bytes`.

#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
namespace moment::v1 {
#define MOMENT_ATOMIC_U64 std::atomic<uint64_t>
#else
#include <stdatomic.h>
#define MOMENT_ATOMIC_U64 _Atomic uint64_t
#endif

#define MOMENT_RING_MAGIC 0x31474e49524d4f4dull /* "MOMRING1" */

#define MOMENT_RING_NO_RUN 0xffffffffu

enum RingOp {
  RING_OP_GRADIENTS_IN = 1,    // trainer's gradients -> slot
  RING_OP_PARAMETERS_IN = 2,   // trainer's parameters -> slot
  RING_OP_PARAMETERS_OUT = 3,  // slot -> trainer's parameters
  RING_OP_SEGMENTS_IN = 4,     // buffers of a WriteTensor -> slot
  RING_OP_SEGMENTS_OUT = 5,    // slot -> buffers of a ReadTensor
};

enum RingSegment {
  RING_SEGMENT_MAIN = 0,
  RING_SEGMENT_EXP_AVG = 1,
  RING_SEGMENT_EXP_AVG_SQ = 2,
};

enum RingResult {
  RING_RESULT_OK = 0,
  RING_RESULT_NO_BUFFER = 1,  // a tensor has no such buffer, or a smaller one
  RING_RESULT_BAD_COMMAND = 2,
};

struct RingHeader {
  uint64_t magic;
  uint32_t version;  // 1
  uint32_t slots;
  uint64_t slot_bytes;
  uint32_t max_runs;  // per command
  uint32_t reserved;
  alignas(64) MOMENT_ATOMIC_U64 issued;     // written by the daemon
  alignas(64) MOMENT_ATOMIC_U64 completed;  // written by the client
};

struct alignas(64) RingCommand {
  uint64_t ticket;      // value of `issued` after this command: 1, 2, ...
  uint64_t generation;  // of the Attach whose buffers are meant
  uint32_t op;          // RingOp
  uint32_t slot;
  uint32_t run_count;
  uint32_t result;  // RingResult, written by the client
  // With RING_RESULT_NO_BUFFER: the run it is about, written by the client if it knows; the daemon
  // leaves MOMENT_RING_NO_RUN here.
  uint32_t failed_run;
  // RING_OP_SEGMENTS_*: the client's number for the buffers of the call; others have no buffer.
  uint64_t binding;
};

// Bytes [tensor_offset_bytes, + length_bytes) of tensor `tensor`'s parameter, gradient or segment
// buffer, at slot_offset_bytes of the slot.
struct RingRun {
  uint32_t tensor;   // store index
  uint32_t segment;  // RingSegment, for RING_OP_SEGMENTS_*; else 0
  uint64_t tensor_offset_bytes;
  uint64_t length_bytes;
  uint64_t slot_offset_bytes;
};

#ifdef __cplusplus
}  // namespace moment::v1
#endif
