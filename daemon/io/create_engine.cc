#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/io/engine_hooks.h"
#include "daemon/io/io_engine.h"
#include "daemon/io/thread_engine.h"
#include "daemon/io/uring_engine.h"

namespace moment::io {
namespace {

// Why a system refuses io_uring, and what to do about it; null: no refusal but a failure.
const char* MeaningOf(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "a seccomp profile, a security module or kernel.io_uring_disabled forbids it";
    case ENOSYS:
      return "this kernel has no io_uring, or a sandbox hides it";
    case EINVAL:
      return "this kernel is too old for it";
    case ENOMEM:
      return "the limit of locked memory (ulimit -l) or the memory is too small for it";
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<CreatedEngine> CreateEngineWithHooks(const EngineOptions& options,
                                                    const EngineHooks& hooks) {
  if (options.kind == EngineKind::kThreads) {
    return CreatedEngine{std::make_unique<ThreadEngine>(options.threads, hooks), ""};
  }
  RingRefusal refusal;
  if (auto engine = UringEngine::Create(options, hooks, &refusal); engine != nullptr) {
    return CreatedEngine{std::move(engine), ""};
  }
  const char* meaning = MeaningOf(refusal.error);
  if (meaning == nullptr) {
    return base::ErrnoStatus(refusal.error, refusal.step, "for the I/O engine");
  }
  std::string reason = absl::StrCat(
      refusal.step, ": ", std::generic_category().message(refusal.error), " (", meaning, ")");
  if (options.kind == EngineKind::kIoUring) {
    return absl::FailedPreconditionError(
        absl::StrCat("io_uring was asked for and is refused: ", reason));
  }
  return CreatedEngine{std::make_unique<ThreadEngine>(options.threads, hooks), std::move(reason)};
}

absl::StatusOr<CreatedEngine> CreateEngine(const EngineOptions& options) {
  return CreateEngineWithHooks(options, EngineHooks());
}

}  // namespace moment::io
