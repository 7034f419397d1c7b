#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/io/engine_hooks.h"
#include "daemon/io/uring_engine.h"
#include "tests/io/engine_subject.h"
#include "tests/io/io_test_support.h"
#include "tests/support/catch.h"

namespace moment::io {
namespace {

constexpr uint64_t kBlock = 4096;

bool HasIoUring() { return RealKinds().front() == "io_uring"; }

// Output of io_child, without the newline.
std::string RunChild(const std::string& arguments) {
  FILE* child = ::popen(absl::StrCat(MOMENT_IO_CHILD, " ", arguments).c_str(), "r");
  REQUIRE(child != nullptr);
  std::string output;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), child) != nullptr) {
    output += buffer;
  }
  REQUIRE(::pclose(child) == 0);
  return output.substr(0, output.find('\n'));
}

TEST_CASE("CreateEngine: a filter that refuses io_uring leads to threads, with the reason",
          "[io]") {
  const int error = GENERATE(EPERM, ENOSYS, EINVAL, ENOMEM);
  const std::string calls = GENERATE("all", "enter", "register");
  CAPTURE(error, calls);
  const TemporaryDirectory directory;
  const std::string output =
      RunChild(absl::StrCat("refused ", error, " ", calls, " ", directory.path()));
  INFO(output);
  const std::vector<std::string> parts = absl::StrSplit(output, '|');
  REQUIRE(parts.size() == 3);
  CHECK(parts[0] == "threads");
  CHECK(absl::StrContains(parts[1], std::generic_category().message(error)));
  CHECK(absl::StartsWith(parts[1], "io_uring_"));
  CHECK(absl::StrContains(parts[2], parts[1]));
}

TEST_CASE("CreateEngine: says what each refusal means", "[io]") {
  const auto [error, meaning] = GENERATE(table<int, std::string>({
      {EPERM, "seccomp"},
      {EACCES, "security module"},
      {ENOSYS, "no io_uring"},
      {EINVAL, "too old"},
      {ENOMEM, "locked memory"},
  }));
  CAPTURE(error, meaning);
  EngineHooks hooks;
  hooks.refuse_ring = [refusal = error](uint32_t) { return refusal; };
  const auto created = CreateEngineWithHooks({}, hooks);
  REQUIRE(created.ok());
  CHECK(std::string(created->engine->name()) == "threads");
  CHECK(absl::StrContains(created->reason, meaning));
}

TEST_CASE("CreateEngine: io_uring that was asked for by name is not replaced", "[io]") {
  EngineHooks hooks;
  hooks.refuse_ring = [](uint32_t) { return EPERM; };
  const auto created = CreateEngineWithHooks({.kind = EngineKind::kIoUring}, hooks);
  CHECK(absl::IsFailedPrecondition(created.status()));
  CHECK(absl::StrContains(created.status().message(), "Operation not permitted"));
}

TEST_CASE("CreateEngine: threads that were asked for by name need no reason", "[io]") {
  const auto created = CreateEngine({.kind = EngineKind::kThreads});
  REQUIRE(created.ok());
  CHECK(std::string(created->engine->name()) == "threads");
  CHECK(created->reason.empty());
}

TEST_CASE("CreateEngine: too many open files is an error, not a refusal", "[io]") {
  EngineHooks hooks;
  hooks.refuse_ring = [](uint32_t) { return EMFILE; };
  CHECK(absl::IsResourceExhausted(CreateEngineWithHooks({}, hooks).status()));
}

TEST_CASE("CreateEngine: a held descriptor that is none is an error", "[io]") {
  if (!HasIoUring()) {
    return;
  }
  EngineOptions options;
  options.held_fds = {100000};
  const auto created = CreateEngine(options);
  CHECK(!created.ok());
  CHECK(absl::StrContains(created.status().message(), "io_uring_register(FILES)"));
}

// A ring that this kernel grants only with at most the flags that `allow` lets pass.
void CheckEngineWithHooks(const EngineHooks& hooks, uint32_t depth, uint64_t* overflows) {
  RingRefusal refusal;
  EngineOptions options;
  options.depth = depth;
  const auto engine = UringEngine::Create(options, hooks, &refusal);
  INFO(refusal.step << " " << refusal.error);
  REQUIRE(engine != nullptr);
  Subject subject("threads");
  constexpr uint64_t kLength = 512 * kBlock;
  const base::AlignedBuffer written = RandomBuffer(kLength, 1);
  const auto file = subject.FileWith("f", written.data(), kLength, false);
  base::AlignedBuffer read = ZeroBuffer(kLength);
  Batch batch(*engine);
  for (uint64_t at = 0; at < kLength; at += kBlock) {
    batch.Add({IoOp::kRead, file.get(), at, read.data() + at, kBlock});
  }
  batch.Run();
  CHECK(batch.first_error() == absl::OkStatus());
  CHECK(SameBytes(read.data(), written.data(), kLength));
  *overflows = engine->overflows();
}

TEST_CASE("UringEngine: set-up flags that a kernel does not know are dropped", "[io]") {
  if (!HasIoUring()) {
    return;
  }
  const uint32_t unknown =
      GENERATE(uint32_t{0}, IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SINGLE_ISSUER, ~uint32_t{0});
  CAPTURE(unknown);
  uint32_t granted = ~uint32_t{0};
  EngineHooks hooks;
  hooks.refuse_ring = [&](uint32_t flags) {
    granted = flags;
    return (flags & unknown) != 0 ? EINVAL : 0;
  };
  uint64_t overflows = 0;
  CheckEngineWithHooks(hooks, 32, &overflows);
  CHECK((granted & unknown) == 0);
  CHECK(overflows == 0);
}

TEST_CASE("UringEngine: a completion queue that overflows loses nothing", "[io]") {
  if (!HasIoUring()) {
    return;
  }
  const bool deferred = GENERATE(true, false);
  CAPTURE(deferred);
  EngineHooks hooks;
  hooks.ring_entries = 4;  // for 128 transfers in flight
  hooks.refuse_ring = [deferred](uint32_t flags) {
    return !deferred && (flags & IORING_SETUP_DEFER_TASKRUN) != 0 ? EINVAL : 0;
  };
  uint64_t overflows = 0;
  CheckEngineWithHooks(hooks, 128, &overflows);
  CHECK(overflows > 0);
}

}  // namespace
}  // namespace moment::io
