#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/fake_trainer.h"

namespace moment {
namespace {

using testing::FakeDaemon;
using testing::Near;
using testing::Trainer;

TEST_CASE("Store: steps write the parameters and the sequence grows", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  CHECK(trainer.store->Info().sequence == 0);
  CHECK(trainer.Step().sequence == 1);
  CHECK(Near(trainer.parameters[0], 0.75f));
  CHECK(Near(trainer.parameters[1], 0.75f));
  CHECK(trainer.Step().sequence == 2);
  CHECK(Near(trainer.parameters[1], 0.5f));
  const std::vector<v1::StepRequest> steps = trainer.daemon->steps();
  CHECK(steps[0].follows() == std::string(16, '\0'));
  CHECK(steps[1].follows() == steps[0].step_id());
  CHECK(trainer.daemon->pidfds() == 1);
}

TEST_CASE("Store: the order of calls is enforced with a sentence", "[client]") {
  Trainer trainer;
  trainer.options.resume = MOMENT_RESUME_ASK;
  trainer.store = std::make_unique<Store>(trainer.options);
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_FAILED_PRECONDITION);
  trainer.store.reset();
  trainer.Open();
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_FAILED_PRECONDITION);
  trainer.store->RefreshAll();
  trainer.Step();
  CHECK(trainer.CodeOf([&] { trainer.store->RefreshAll(); }) == MOMENT_FAILED_PRECONDITION);
}

TEST_CASE("Store: a second trainer is refused, and takes over when told to", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  OpenOptions second = trainer.options;
  second.resume = MOMENT_RESUME_AUTO;
  CHECK(trainer.CodeOf([&] { Store other(second); }) == MOMENT_ALREADY_EXISTS);
  second.takeover = true;
  Store other(second);
  // The first one does not take its store back.
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_ALREADY_EXISTS);
  CHECK_FALSE(trainer.daemon->opens().back().takeover());
}

TEST_CASE("Store: existing state is resumed with its parameters and blob", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step("one");
  trainer.Step("two");
  trainer.store.reset();
  CHECK(trainer.CodeOf([&] { trainer.Open(); }) == MOMENT_ALREADY_EXISTS);
  trainer.parameters[1].assign(3000, 77.0f);
  trainer.Open(MOMENT_RESUME_MUST);
  CHECK(trainer.store->Info().parameters_stale == 1);
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_FAILED_PRECONDITION);
  trainer.store->Materialize();
  CHECK(Near(trainer.parameters[1], 0.5f));
  CHECK(trainer.store->Blob() == "two");
  CHECK(trainer.Step().sequence == 3);
}

TEST_CASE("Store: starting over discards what was there", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  trainer.store.reset();
  trainer.parameters[1].assign(3000, 5.0f);
  trainer.Open(MOMENT_RESUME_NEVER);
  CHECK(trainer.store->Info().empty == 1);
  trainer.store->RefreshAll();
  CHECK(trainer.Step().sequence == 1);
  CHECK(Near(trainer.parameters[1], 4.75f));
}

TEST_CASE("Store: a step cut before or after it was applied is applied once", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.daemon->faults().drop_step_before = 1;
  CHECK(trainer.Step().replayed == 0);
  CHECK(Near(trainer.parameters[1], 0.75f));
  trainer.daemon->faults().drop_step_after = 1;
  CHECK(trainer.Step("blob").replayed == 1);
  CHECK(Near(trainer.parameters[1], 0.5f));
  CHECK(trainer.store->Info().sequence == 2);
  CHECK(trainer.store->Info().reconnects == 2);
  CHECK(trainer.store->Blob() == "blob");
  const std::vector<v1::StepRequest> steps = trainer.daemon->steps();
  REQUIRE(steps.size() == 4);
  CHECK(steps[0].step_id() == steps[1].step_id());
  CHECK(steps[2].step_id() == steps[3].step_id());
  CHECK(trainer.daemon->opens().back().resume() == v1::RESUME_MUST);
  CHECK(trainer.daemon->opens().back().last_answered().sequence() == 1);
}

TEST_CASE("Store: a daemon that comes back later is waited for", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  trainer.store->Flush();
  trainer.daemon.reset();
  std::thread later([&] { trainer.Start(); });
  CHECK(trainer.Step().sequence == 2);
  later.join();
  CHECK(Near(trainer.parameters[1], 0.5f));
}

TEST_CASE("Store: a daemon that stays away is given up", "[client]") {
  Trainer trainer;
  trainer.options.retry_for_seconds = 0.2;
  trainer.OpenAndFill();
  trainer.daemon.reset();
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_UNAVAILABLE);
  CHECK(trainer.store->Info().step_in_flight == 1);
  trainer.Start();
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_FAILED_PRECONDITION);
  moment::Step again = trainer.MakeStep();
  again.resend = true;
  CHECK(trainer.store->Run(again).sequence == 1);
  CHECK(Near(trainer.parameters[1], 0.75f));
}

TEST_CASE("Store: what a killed daemon had not committed is told as Rewound", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step("one");
  trainer.Step("two");
  trainer.daemon.reset();
  FakeDaemon::LoseUncommitted(&trainer.disk);
  trainer.Start();
  uint64_t sequence = 0;
  try {
    trainer.Step();
  } catch (const Rewound& rewound) {
    sequence = rewound.sequence();
  }
  CHECK(sequence == 1);
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_REWOUND);
  CHECK(trainer.CodeOf([&] { trainer.store->Flush(); }) == MOMENT_REWOUND);
  trainer.store->Materialize();
  CHECK(trainer.store->Blob() == "one");
  CHECK(Near(trainer.parameters[1], 0.75f));
  CHECK(trainer.Step().sequence == 2);
}

TEST_CASE("Store: steps of another trainer are noticed at a reconnect", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  trainer.daemon.reset();
  trainer.disk.stores.begin()->second.step_id = std::string(16, 'x');
  trainer.Start();
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_FAILED_PRECONDITION);
}

TEST_CASE("Store: a first filling whose answer was lost is filled once more", "[client]") {
  Trainer trainer;
  trainer.Open();
  trainer.daemon->faults().drop_refresh_after = 1;
  trainer.store->RefreshAll();
  CHECK(trainer.Step().sequence == 1);
  CHECK(Near(trainer.parameters[0], 0.75f));
}

TEST_CASE("Store: a step refused for good before anything was written leaves all as it was",
          "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.daemon->faults().fail_step = 1;
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_INTERNAL);
  CHECK(trainer.store->Info().step_in_flight == 0);
  CHECK(trainer.Step().sequence == 1);
}

TEST_CASE("Store: a step that failed midway leaves only resend, materialize and rollback",
          "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.daemon->faults().fail_step_midway = 1;
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_INTERNAL);
  CHECK(trainer.store->Info().step_in_flight == 1);
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_FAILED_PRECONDITION);
  CHECK(trainer.CodeOf([&] { trainer.store->Skip(); }) == MOMENT_FAILED_PRECONDITION);
  CHECK(trainer.CodeOf([&] { trainer.store->Flush(); }) == MOMENT_FAILED_PRECONDITION);
  CHECK(trainer.CodeOf([&] { trainer.store->Refresh({{0, 1}}); }) == MOMENT_FAILED_PRECONDITION);
  trainer.store->Materialize();
  CHECK(Near(trainer.parameters[0], 1.0f));
  CHECK(trainer.Step().sequence == 1);
}

TEST_CASE("Store: a rollback goes back, and materialize brings the parameters", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step("one");
  trainer.Step("two");
  trainer.store->Rollback(1);
  CHECK(trainer.store->Blob() == "one");
  CHECK(trainer.CodeOf([&] { trainer.Step(); }) == MOMENT_FAILED_PRECONDITION);
  trainer.store->Materialize();
  CHECK(Near(trainer.parameters[1], 0.75f));
  CHECK(trainer.Step().sequence == 2);
  CHECK(trainer.CodeOf([&] { trainer.store->Rollback(99); }) == MOMENT_NOT_FOUND);
}

TEST_CASE("Store: a skip advances the sequence alone", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  CHECK(trainer.store->Skip("skipped") == 1);
  CHECK(Near(trainer.parameters[1], 1.0f));
  CHECK(trainer.store->Blob() == "skipped");
  CHECK(trainer.Step().sequence == 2);
  CHECK(Near(trainer.parameters[1], 0.75f));
}

TEST_CASE("Store: parameters changed between steps are refreshed", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.parameters[0].assign(6, 3.0f);
  trainer.store->Refresh({{0, 1}});
  trainer.Step();
  CHECK(Near(trainer.parameters[0], 2.75f));
  CHECK(Near(trainer.parameters[1], 0.75f));
}

TEST_CASE("Store: gradients of another type are announced, and buckets reported", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  std::vector<uint16_t> half(3000, 0x3f00);  // 0.5 in bf16
  moment::Step step = trainer.MakeStep();
  step.gradients[1] = half.data();
  step.gradient_types = {MOMENT_TYPE_DEFAULT, MOMENT_TYPE_BFLOAT16, MOMENT_TYPE_DEFAULT};
  uint32_t reported = 0;
  step.bucket_final = [&](uint32_t, uint32_t, const std::vector<moment_run>& tensors) {
    reported += tensors[0].count;
  };
  trainer.store->Run(step);
  CHECK(Near(trainer.parameters[1], 0.75f));
  CHECK(reported == 3);
  CHECK(trainer.Step().sequence == 2);
}

TEST_CASE("Store: moved parameters need no session of their own", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  std::vector<float> moved(3000, 1.0f);
  trainer.store->Attach({trainer.parameters[0].data(), moved.data(), nullptr});
  trainer.Step();
  CHECK(Near(moved, 0.75f));
  CHECK(Near(trainer.parameters[1], 1.0f));
}

TEST_CASE("Store: another thread cancels a step, which can be sent again", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.daemon->faults().hold_steps = true;
  moment_status status = MOMENT_OK;
  std::thread stepping([&] { status = trainer.CodeOf([&] { trainer.Step(); }); });
  while (trainer.store->Info().step_in_flight == 0) {
    std::this_thread::yield();
  }
  trainer.store->Cancel();
  stepping.join();
  CHECK(status == MOMENT_CANCELLED);
  CHECK(trainer.store->Info().step_in_flight == 1);
  trainer.daemon->faults().hold_steps = false;
  moment::Step again = trainer.MakeStep();
  again.resend = true;
  CHECK(trainer.store->Run(again).sequence == 1);
}

TEST_CASE("Store: a forked child is told so at once, and the parent goes on", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  const pid_t child = ::fork();
  if (child == 0) {
    moment_step_options options = MOMENT_STEP_OPTIONS_INIT;
    moment_store* other = nullptr;
    moment_open_options open = MOMENT_OPEN_OPTIONS_INIT;
    open.job = "child";
    const bool good = moment_step(trainer.store->get(), &options, nullptr) == MOMENT_FORKED &&
                      moment_flush(trainer.store->get(), nullptr) == MOMENT_FORKED &&
                      moment_open(&open, &other) == MOMENT_FORKED &&
                      std::strstr(moment_last_error(), "forked") != nullptr &&
                      moment_close(trainer.store->get()) == MOMENT_OK;
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(trainer.Step().sequence == 1);
}

TEST_CASE("C ABI: structs of an older or newer header are told apart", "[client]") {
  moment_store* store = nullptr;
  moment_open_options options = MOMENT_OPEN_OPTIONS_INIT;
  options.job = "job";
  options.struct_size = sizeof options + 8;
  CHECK(moment_open(&options, &store) == MOMENT_INVALID_ARGUMENT);
  options.struct_size = 0;
  CHECK(moment_open(&options, &store) == MOMENT_INVALID_ARGUMENT);
  CHECK(moment_open(nullptr, &store) == MOMENT_INVALID_ARGUMENT);
  CHECK(moment_close(nullptr) == MOMENT_OK);
  CHECK(moment_flush(nullptr, nullptr) == MOMENT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace moment
