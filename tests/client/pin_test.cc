// Pins of a store beside a fake daemon.
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/client/fake_trainer.h"

namespace moment {
namespace {

// The elements of one segment of one tensor, put together from a pin's pieces.
std::vector<float> Values(const std::vector<moment_pin_piece>& pieces, uint32_t tensor,
                          moment_segment segment) {
  std::vector<float> values;
  for (const moment_pin_piece& piece : pieces) {
    if (piece.tensor != tensor || piece.segment != segment) {
      continue;
    }
    CHECK(piece.type == MOMENT_TYPE_FLOAT32);
    CHECK(piece.first == values.size());
    values.resize(values.size() + piece.count);
    const auto bytes = static_cast<ssize_t>(piece.count * sizeof(float));
    CHECK(::pread(piece.fd, values.data() + piece.first, static_cast<size_t>(bytes),
                  static_cast<off_t>(piece.offset_bytes)) == bytes);
  }
  return values;
}

TEST_CASE("Pin: its pieces hold every element of the step it was made at", "[client]") {
  testing::Trainer trainer;
  trainer.daemon->faults().pin_bucket_elements = GENERATE(as<uint64_t>{}, 1000000, 700, 40);
  trainer.OpenAndFill();
  trainer.Step();
  Pin pin = trainer.store->CreatePin();
  const std::vector<float> pinned = trainer.parameters[1];
  trainer.Step();
  CHECK(pin.Info().commit.sequence == 1);
  CHECK(std::string(pin.Info().id).size() == 32);
  CHECK(pin.Steps() == std::vector<uint64_t>{1, 1, 0});  // the empty one sat out
  const std::vector<moment_pin_piece> pieces = pin.Pieces();
  CHECK(Values(pieces, 0, MOMENT_SEGMENT_MAIN).size() == 6);
  CHECK(Values(pieces, 1, MOMENT_SEGMENT_MAIN) == pinned);
  CHECK(testing::Near(Values(pieces, 1, MOMENT_SEGMENT_EXP_AVG), 0.05f));
  CHECK(Values(pieces, 1, MOMENT_SEGMENT_EXP_AVG_SQ).size() == 3000);
  CHECK(Values(pieces, 2, MOMENT_SEGMENT_MAIN).empty());
  CHECK(trainer.daemon->pins() == 1);
  pin.Release();
  CHECK(trainer.daemon->pins() == 0);
}

TEST_CASE("Pin: released twice, by its end, or after its store", "[client]") {
  testing::Trainer trainer;
  trainer.OpenAndFill();
  moment_pin* pin = nullptr;
  REQUIRE(moment_pin_create(trainer.store->get(), &pin) == MOMENT_OK);
  CHECK(moment_pin_release(&pin) == MOMENT_OK);
  CHECK(pin == nullptr);
  CHECK(moment_pin_release(&pin) == MOMENT_OK);
  CHECK(moment_pin_release(nullptr) == MOMENT_OK);
  { const Pin other = trainer.store->CreatePin(); }
  CHECK(trainer.daemon->pins() == 0);
  Pin last = trainer.store->CreatePin();
  const std::vector<moment_pin_piece> pieces = last.Pieces();
  trainer.store->Close();
  CHECK(Values(pieces, 0, MOMENT_SEGMENT_MAIN).size() == 6);
  last.Release();
}

TEST_CASE("Pin: after a lost session it can be read, and released without a daemon's word",
          "[client]") {
  testing::Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  Pin pin = trainer.store->CreatePin();
  trainer.daemon->EndSessions("for a test");
  trainer.Step();  // on another session
  CHECK(Values(pin.Pieces(), 1, MOMENT_SEGMENT_MAIN).size() == 3000);
  pin.Release();
  CHECK(trainer.store->CreatePin().Info().commit.sequence == 2);
}

TEST_CASE("Pin: one whose answer was lost is made again on the next session", "[client]") {
  testing::Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  trainer.daemon->faults().drop_pin_after = 1;
  const Pin pin = trainer.store->CreatePin();
  CHECK(pin.Info().commit.sequence == 1);
  CHECK(trainer.daemon->pins() == 1);
}

TEST_CASE("Pin: a cancelled one leaves none behind", "[client]") {
  testing::Trainer trainer;
  trainer.OpenAndFill();
  trainer.daemon->faults().hold_pins = true;
  moment_status status = MOMENT_OK;
  std::thread pinning([&] { status = trainer.CodeOf([&] { trainer.store->CreatePin(); }); });
  while (trainer.daemon->faults().pins_held == 0) {
    std::this_thread::yield();
  }
  trainer.store->Cancel();
  pinning.join();
  CHECK(status == MOMENT_CANCELLED);
  trainer.daemon->faults().hold_pins = false;
  const Pin pin = trainer.store->CreatePin();
  CHECK(trainer.daemon->pins() == 1);
}

TEST_CASE("Pin: an empty store and a NULL are refused", "[client]") {
  testing::Trainer trainer;
  trainer.Open();
  CHECK(trainer.CodeOf([&] { trainer.store->CreatePin(); }) == MOMENT_FAILED_PRECONDITION);
  size_t count = 0;
  CHECK(moment_pin_steps(nullptr, nullptr, 0, &count) == MOMENT_INVALID_ARGUMENT);
  CHECK(moment_pin_create(trainer.store->get(), nullptr) == MOMENT_INVALID_ARGUMENT);
}

TEST_CASE("Pin: a forked child is told so, and its release touches nothing", "[client]") {
  testing::Trainer trainer;
  trainer.OpenAndFill();
  moment_pin* pin = nullptr;
  REQUIRE(moment_pin_create(trainer.store->get(), &pin) == MOMENT_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    size_t count = 0;
    moment_pin* other = nullptr;
    const bool good = moment_pin_pieces(pin, nullptr, 0, &count) == MOMENT_FORKED &&
                      moment_pin_create(trainer.store->get(), &other) == MOMENT_FORKED &&
                      moment_pin_release(&pin) == MOMENT_OK && pin != nullptr;
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(trainer.daemon->pins() == 1);
  CHECK(moment_pin_release(&pin) == MOMENT_OK);
  CHECK(trainer.daemon->pins() == 0);
}

}  // namespace
}  // namespace moment
