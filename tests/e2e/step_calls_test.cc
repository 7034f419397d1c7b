// What a session of the real program refuses of steps, by raw calls: the sequence and its ids,
// hyperparameters, buffers. A store without elements steps without a byte through the ring.
#include <cmath>
#include <limits>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_client.h"
#include "tests/support/catch.h"

namespace moment::e2e {
namespace {

std::string Id(char letter) { return std::string(16, letter); }

// A store of one tensor without elements, filled and attached.
struct Session {
  Session() : daemon(place), client(daemon) {
    const grpc::Status status = client.Open(OpenOf("steps", 1, 0), opened);
    INFO(status.error_message());
    REQUIRE(status.ok());
    client.Attach(opened);
    v1::RefreshRequest refresh;
    refresh.set_session(opened.session());
    refresh.set_operation("fill");
    refresh.mutable_whole();
    REQUIRE(client.Refresh(refresh).ok());
  }

  v1::StepRequest StepOf(uint64_t sequence, char id, char follows) const {
    v1::StepRequest request;
    request.set_session(opened.session());
    request.set_sequence(sequence);
    request.set_step_id(Id(id));
    request.set_follows(Id(follows));
    v1::Group* group = request.add_groups();
    group->mutable_hyperparameters()->set_lr(0.1);
    group->mutable_hyperparameters()->set_beta1(0.9);
    group->mutable_hyperparameters()->set_beta2(0.999);
    group->mutable_hyperparameters()->set_eps(1e-8);
    group->mutable_hyperparameters()->set_mode(v1::ADAM_MODE_ADAMW);
    v1::TensorRun* run = group->mutable_tensors()->add_runs();
    run->set_count(1);
    return request;
  }

  // The step is answered; what of is returned.
  v1::StepDone Run(const v1::StepRequest& request) {
    v1::StepDone done;
    const grpc::Status status = client.Step(request, done);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return done;
  }

  // The step is refused with this code and these words; the store stands where it stood.
  void RequireRefused(const v1::StepRequest& request, grpc::StatusCode code,
                      const std::vector<std::string>& words) {
    v1::StepDone done;
    const grpc::Status status = client.Step(request, done);
    INFO(status.error_message());
    CHECK(status.error_code() == code);
    for (const std::string& word : words) {
      CHECK(Has(status.error_message(), word));
    }
  }

  Place place;
  Daemon daemon;
  RawClient client;
  v1::OpenResponse opened;
};

TEST_CASE("Step: a wrong predecessor, an old and a future sequence are refused naming both sides",
          "[e2e]") {
  Session session;
  session.RequireRefused(session.StepOf(1, 'a', 'x'), grpc::StatusCode::FAILED_PRECONDITION,
                         {"78787878", "00000000"});
  session.Run(session.StepOf(1, 'a', '\0'));
  session.Run(session.StepOf(2, 'b', 'a'));
  session.RequireRefused(session.StepOf(3, 'c', 'a'), grpc::StatusCode::FAILED_PRECONDITION,
                         {"61616161", "62626262"});
  session.RequireRefused(session.StepOf(1, 'd', '\0'), grpc::StatusCode::FAILED_PRECONDITION,
                         {"sequence 2", "next one is 3"});
  session.RequireRefused(session.StepOf(4, 'd', 'b'), grpc::StatusCode::FAILED_PRECONDITION,
                         {"next one is 3"});
  session.RequireRefused(session.StepOf(2, 'd', 'a'), grpc::StatusCode::FAILED_PRECONDITION,
                         {"64646464", "62626262"});
  CHECK_FALSE(session.Run(session.StepOf(3, 'c', 'b')).replayed());
}

TEST_CASE("Step: a repeated id is a replay with the same contents and refused with others",
          "[e2e]") {
  Session session;
  const v1::StepRequest first = session.StepOf(1, 'a', '\0');
  CHECK_FALSE(session.Run(first).replayed());
  CHECK(session.Run(first).replayed());
  v1::StepRequest other = first;
  other.mutable_groups(0)->mutable_hyperparameters()->set_lr(0.2);
  session.RequireRefused(other, grpc::StatusCode::INVALID_ARGUMENT, {"61616161", "contents"});
  other = first;
  other.set_blob("another");
  session.RequireRefused(other, grpc::StatusCode::INVALID_ARGUMENT, {"blob"});
  other = first;
  other.set_sequence(2);
  session.RequireRefused(other, grpc::StatusCode::INVALID_ARGUMENT, {"contents"});
  v1::SkipRequest skip;
  skip.set_session(session.opened.session());
  skip.set_sequence(1);
  skip.set_step_id(Id('a'));
  skip.set_follows(Id('\0'));
  v1::SkipResponse skipped;
  CHECK(session.client.Skip(skip, skipped).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(session.Run(first).sequence() == 1);
}

TEST_CASE("Skip: the answer says that it was skipped, and a step follows it", "[e2e]") {
  Session session;
  v1::SkipRequest skip;
  skip.set_session(session.opened.session());
  skip.set_sequence(1);
  skip.set_step_id(Id('s'));
  skip.set_follows(Id('\0'));
  v1::SkipResponse skipped;
  REQUIRE(session.client.Skip(skip, skipped).ok());
  CHECK(skipped.skipped());
  CHECK_FALSE(skipped.replayed());
  REQUIRE(session.client.Skip(skip, skipped).ok());
  CHECK(skipped.replayed());
  CHECK(session.Run(session.StepOf(2, 'b', 's')).sequence() == 2);
}

TEST_CASE("Step: NaN, Inf and values out of range are refused naming group and field", "[e2e]") {
  Session session;
  const double infinity = std::numeric_limits<double>::infinity();
  using Set = void (v1::Hyperparameters::*)(double);
  const struct {
    const char* name;
    Set set;
    double value;
  } cases[] = {{"lr", &v1::Hyperparameters::set_lr, std::nan("")},
               {"lr", &v1::Hyperparameters::set_lr, infinity},
               {"beta1", &v1::Hyperparameters::set_beta1, 1.5},
               {"beta2", &v1::Hyperparameters::set_beta2, std::nan("")},
               {"eps", &v1::Hyperparameters::set_eps, -1.0},
               {"weight_decay", &v1::Hyperparameters::set_weight_decay, -infinity}};
  for (const auto& bad : cases) {
    v1::StepRequest request = session.StepOf(1, 'a', '\0');
    (request.mutable_groups(0)->mutable_hyperparameters()->*bad.set)(bad.value);
    session.RequireRefused(request, grpc::StatusCode::INVALID_ARGUMENT, {"group 0", bad.name});
  }
  session.Run(session.StepOf(1, 'a', '\0'));
}

TEST_CASE("Attach: a buffer of another size, type or device is refused naming it", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenResponse opened;
  REQUIRE(client.Open(OpenOf("buffers", 2), opened).ok());
  v1::AttachRequest good;
  good.set_session(opened.session());
  good.set_generation(1);
  v1::Region* region = good.add_regions();
  region->set_region(7);
  region->set_length_bytes(2 * 64 * sizeof(float));
  region->mutable_ring();
  for (uint32_t tensor = 0; tensor < 2; ++tensor) {
    v1::TensorLocation* location = good.add_parameters();
    location->set_tensor(tensor);
    location->set_region(7);
    location->set_offset_bytes(tensor * 64 * sizeof(float));
  }
  v1::AttachRequest small = good;
  small.mutable_regions(0)->set_length_bytes(2 * 64 * sizeof(float) - 1);
  grpc::Status status = client.Attach(small);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(Has(status.error_message(), "layer.1"));
  v1::AttachRequest type = good;
  v1::GradientType* gradients = type.add_gradient_types();
  gradients->set_type(v1::DATA_TYPE_FLOAT8_E4M3);
  gradients->mutable_tensors()->add_runs()->set_count(1);
  status = client.Attach(type);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(Has(status.error_message(), "FLOAT8"));
  v1::AttachRequest device = good;
  device.mutable_regions(0)->mutable_cuda_ipc()->set_handle(std::string(64, 'h'));
  status = client.Attach(device);
  CHECK(status.error_code() == grpc::StatusCode::UNIMPLEMENTED);
  CHECK(Has(status.error_message(), "region 7"));
  v1::AttachRequest nowhere = good;
  nowhere.mutable_parameters(1)->set_region(8);
  CHECK(client.Attach(nowhere).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  v1::AttachRequest beyond = good;
  beyond.mutable_parameters(1)->set_tensor(2);
  CHECK(client.Attach(beyond).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(client.Attach(good).ok());
}

}  // namespace
}  // namespace moment::e2e
