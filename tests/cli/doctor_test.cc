// What doctor makes of what it finds, over simulated machines.
#include <algorithm>

#include "daemon/cli/daemon_checks.h"
#include "daemon/cli/gpu_checks.h"
#include "daemon/cli/host_checks.h"
#include "daemon/cli/pid_check.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

using cuda::Sharing;
using test::ContainsSubstring;

constexpr char kUuid[] = "GPU-1";

// A machine with one GPU, whose memory another process can open.
struct Machine {
  absl::StatusOr<cuda::GpuSurvey> survey;
  absl::Status by_handle;
  absl::Status by_descriptor;

  Machine() {
    cuda::GpuSurvey found;
    found.cuda_version = "13.0";
    found.driver_version = "580.1";
    found.gpus.resize(1);
    found.gpus[0].uuid = kUuid;
    found.gpus[0].model = "a model";
    survey = found;
  }

  cuda::GpuSettings& gpu() { return survey->gpus[0]; }

  Checks Run() const {
    return CheckGpus({[this] { return survey; },
                      [this](const std::string& uuid, Sharing sharing) {
                        CHECK(uuid == kUuid);
                        return sharing == Sharing::kHandle ? by_handle : by_descriptor;
                      }});
  }
};

Check Named(const Checks& checks, const std::string& name) {
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.name == name; });
  REQUIRE(found != checks.end());
  return *found;
}

bool AllAre(const Checks& checks, Verdict verdict) {
  return std::all_of(checks.begin(), checks.end(),
                     [verdict](const Check& check) { return check.verdict == verdict; });
}

TEST_CASE("Doctor: a GPU as it comes is fine, and named with its driver", "[cli]") {
  const Checks checks = Machine().Run();
  CHECK(checks.size() == 7);
  CHECK(AllAre(checks, Verdict::kOk));
  for (const char* text : {"13.0", "580.1", kUuid, "a model"}) {
    CHECK_THAT(Named(checks, "driver").finding, ContainsSubstring(text));
  }
}

TEST_CASE("Doctor: without a driver or without kernels a GPU is not applicable", "[cli]") {
  Machine machine;
  machine.survey = GENERATE(absl::NotFoundError("no driver"), absl::UnimplementedError("no nvcc"));
  const Checks checks = machine.Run();
  CHECK(checks.size() == 7);
  CHECK(AllAre(checks, Verdict::kNotApplicable));
  CHECK(Named(checks, "driver").finding == machine.survey.status().message());
}

TEST_CASE("Doctor: a driver that is too old is a failure", "[cli]") {
  Machine machine;
  machine.survey = absl::FailedPreconditionError("too old");
  CHECK(Named(machine.Run(), "driver").verdict == Verdict::kFailure);
}

TEST_CASE("Doctor: without NVML the driver is a warning that says what is missing", "[cli]") {
  Machine machine;
  machine.survey->nvml_reason = "no management library";
  const Check check = Named(machine.Run(), "driver");
  CHECK(check.verdict == Verdict::kWarning);
  CHECK_THAT(check.advice, ContainsSubstring("NVIDIA_DRIVER_CAPABILITIES"));
}

TEST_CASE("Doctor: EXCLUSIVE_PROCESS is a failure with its remedy, and sharing is not tried",
          "[cli]") {
  Machine machine;
  machine.gpu().compute_mode = cuda::ComputeMode::kExclusiveProcess;
  machine.by_handle = absl::InternalError("was tried");
  const Checks checks = machine.Run();
  const Check check = Named(checks, "compute-mode");
  CHECK(check.verdict == Verdict::kFailure);
  CHECK(check.subject == kUuid);
  CHECK_THAT(check.advice, ContainsSubstring("-c DEFAULT"));
  CHECK(Named(checks, "ipc-handle").verdict == Verdict::kNotApplicable);
}

TEST_CASE("Doctor: confidential computing is a failure, MPS and MIG are warnings", "[cli]") {
  Machine machine;
  machine.gpu().confidential = true;
  machine.gpu().mps = true;
  machine.gpu().mig = true;
  const Checks checks = machine.Run();
  CHECK(Named(checks, "confidential").verdict == Verdict::kFailure);
  CHECK(Named(checks, "mps").verdict == Verdict::kWarning);
  CHECK(Named(checks, "mig").verdict == Verdict::kWarning);
  CHECK_FALSE(Named(checks, "mig").advice.empty());
}

TEST_CASE("Doctor: what a second process cannot open is a warning with the driver's words",
          "[cli]") {
  Machine machine;
  machine.by_handle = absl::FailedPreconditionError("invalid device context");
  const Checks checks = machine.Run();
  const Check check = Named(checks, "ipc-handle");
  CHECK(check.verdict == Verdict::kWarning);
  CHECK(check.finding == "invalid device context");
  CHECK_THAT(check.advice, ContainsSubstring("process numbers"));
  CHECK(Named(checks, "ipc-descriptor").verdict == Verdict::kOk);
}

TEST_CASE("Doctor: a GPU too full for the trial is told apart", "[cli]") {
  Machine machine;
  machine.by_descriptor = absl::ResourceExhaustedError("out of memory");
  CHECK_THAT(Named(machine.Run(), "ipc-descriptor").advice, ContainsSubstring("free memory"));
}

TEST_CASE("Doctor: locked memory counts unless the process is exempt", "[cli]") {
  CHECK(JudgeLockedMemory(0, false).verdict == Verdict::kWarning);
  CHECK_THAT(JudgeLockedMemory(0, false).advice, ContainsSubstring("LimitMEMLOCK"));
  CHECK(JudgeLockedMemory(0, true).verdict == Verdict::kOk);
  CHECK(JudgeLockedMemory(uint64_t{8} << 20, false).verdict == Verdict::kOk);
  CHECK_THAT(JudgeLockedMemory(UINT64_MAX, false).finding, ContainsSubstring("unlimited"));
}

TEST_CASE("Doctor: few descriptors are a warning, very few a failure", "[cli]") {
  CHECK(JudgeFileLimit(1024, 4096).verdict == Verdict::kOk);
  CHECK(JudgeFileLimit(1023, 4096).verdict == Verdict::kWarning);
  CHECK(JudgeFileLimit(255, 4096).verdict == Verdict::kFailure);
  CHECK_THAT(JudgeFileLimit(255, 4096).advice, ContainsSubstring("LimitNOFILE"));
}

TEST_CASE("Doctor: equal process numbers in two namespaces are a failure", "[cli]") {
  PidFacts facts;
  facts.own = 1;
  CHECK(JudgePids(facts).verdict == Verdict::kOk);
  facts.in_own_namespace = true;
  CHECK(JudgePids(facts).verdict == Verdict::kWarning);
  facts.daemon = 1;
  facts.daemon_from_us = 0;
  CHECK(JudgePids(facts).verdict == Verdict::kFailure);
  CHECK_THAT(JudgePids(facts).advice, ContainsSubstring("shareProcessNamespace"));
  facts.own = 2;
  CHECK(JudgePids(facts).verdict == Verdict::kWarning);
  facts.daemon = 77;
  facts.daemon_from_us = 77;
  CHECK(JudgePids(facts).verdict == Verdict::kOk);
}

TEST_CASE("Doctor: what a daemon says of itself is passed on", "[cli]") {
  v1::StatusResponse status;
  status.set_version("1");
  for (const char* health : {"serving", "device", "space"}) {
    v1::StateDirectoryStatus* directory = status.add_state_directories();
    directory->set_path(health);
    directory->set_health(health);
    directory->set_direct_io(true);
  }
  status.mutable_state_directories(0)->set_io_engine_reason("refused");
  v1::GpuNotice* notice = status.add_gpu_notices();
  notice->set_uuid(kUuid);
  notice->set_setting("compute-mode");
  notice->set_unused(true);
  notice->set_text("what to do");
  Checks checks = JudgeStatus(status);
  REQUIRE(checks.size() == 5);
  CHECK(checks[0].verdict == Verdict::kOk);
  CHECK(checks[1].verdict == Verdict::kWarning);
  CHECK(checks[1].finding == "refused");
  CHECK(checks[2].verdict == Verdict::kFailure);
  CHECK(checks[3].verdict == Verdict::kWarning);
  CHECK(checks[4].verdict == Verdict::kFailure);
  CHECK(checks[4].advice == "what to do");
  status.set_draining(true);
  CHECK(JudgeStatus(status)[0].verdict == Verdict::kWarning);
}

}  // namespace
}  // namespace moment::cli
