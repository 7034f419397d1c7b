#include "daemon/io/ring.h"

#include <array>
#include <cerrno>
#include <cstdlib>

namespace moment::io {
namespace {

// Best first. With one issuing thread completions are best run when that thread asks for them
// (Linux 6.1), else without interrupting it (6.0, 5.19); the last works everywhere.
constexpr std::array<uint32_t, 4> kFlagSets = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
    IORING_SETUP_COOP_TASKRUN,
    0,
};

constexpr std::array<int, 5> kOperations = {IORING_OP_NOP, IORING_OP_READ, IORING_OP_WRITE,
                                            IORING_OP_FSYNC, IORING_OP_POLL_ADD};

}  // namespace

Ring::~Ring() {
  if (open_) {
    io_uring_queue_exit(&ring_);
  }
}

bool Ring::Open(const RingOptions& options, RingRefusal* refusal) {
  const auto passed = [refusal](int result, const char* step) {
    if (result < 0) {
      *refusal = {-result, step};
    }
    return result >= 0;
  };
  if (!passed(SetUp(options), "io_uring_setup")) {
    return false;
  }
  open_ = true;
  const auto held = static_cast<unsigned>(options.held_fds.size());
  return passed(CheckOperations(), "io_uring_register(PROBE)") &&
         passed(held == 0 ? 0 : io_uring_register_files(&ring_, options.held_fds.data(), held),
                "io_uring_register(FILES)") &&
         passed(RoundTrip(), "io_uring_enter");
}

int Ring::SetUp(const RingOptions& options) {
  int result = -EINVAL;
  for (const uint32_t flags : kFlagSets) {
    io_uring_params params{};
    params.flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    params.cq_entries = options.completion_entries;
    const int refused = options.refuse ? options.refuse(flags) : 0;
    result = refused != 0 ? -refused
                          : io_uring_queue_init_params(options.submission_entries, &ring_, &params);
    if (result != -EINVAL) {
      break;
    }
  }
  return result;
}

int Ring::CheckOperations() {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
  if (probe == nullptr) {
    // liburing hides the errno here; the plain call shows it.
    io_uring_probe empty{};
    const int result = io_uring_register_probe(&ring_, &empty, 0);
    return result < 0 ? result : -ENOMEM;
  }
  int result = 0;
  for (const int operation : kOperations) {
    if (io_uring_opcode_supported(probe, operation) == 0) {
      result = -EINVAL;
    }
  }
  io_uring_free_probe(probe);
  return result;
}

int Ring::RoundTrip() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) {
    return -ENOMEM;
  }
  io_uring_prep_nop(sqe);
  io_uring_cqe* cqe = nullptr;
  int result = io_uring_submit_and_wait(&ring_, 1);
  if (result >= 0) {
    result = io_uring_wait_cqe(&ring_, &cqe);
  }
  if (result < 0) {
    return result;
  }
  result = cqe->res;
  io_uring_cqe_seen(&ring_, cqe);
  return result;
}

}  // namespace moment::io
