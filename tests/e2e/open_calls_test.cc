// What Open and fd.sock of the real program accept and refuse, by raw calls.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "daemon/base/fd.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_client.h"
#include "tests/support/catch.h"

namespace moment::e2e {
namespace {

TEST_CASE("Open: names with slashes, spaces, unicode and 1,000 characters are stores of their own",
          "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  const std::string names[] = {"a/b", "a b",        "../../etc",
                               ".",   "größe-模型", std::string(1000, 'n')};
  for (const std::string& name : names) {
    v1::OpenResponse opened;
    const grpc::Status status = client.Open(OpenOf(name), opened);
    INFO(name << ": " << status.error_message());
    REQUIRE(status.ok());
    REQUIRE(opened.empty());
  }
  grpc::ClientContext context;
  RawClient::SetDeadline(context);
  v1::ListResponse list;
  REQUIRE(client.admin->List(&context, {}, &list).ok());
  REQUIRE(static_cast<size_t>(list.stores_size()) == std::size(names));
  for (const v1::StoreSummary& store : list.stores()) {
    REQUIRE(Has(store.directory(), place / "state/jobs/"));
    REQUIRE_FALSE(store.session().empty());
  }
}

TEST_CASE("Open: bad names are refused, and the daemon stays up", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenResponse opened;
  REQUIRE(client.Open(OpenOf(""), opened).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  REQUIRE(client.Open(OpenOf(std::string(1025, 'x')), opened).error_code() ==
          grpc::StatusCode::INVALID_ARGUMENT);
  REQUIRE(client.Open(OpenOf("good"), opened).ok());
}

TEST_CASE("Open: fp8 segments and an fp16 exp_avg_sq are refused by name", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenResponse opened;
  v1::OpenRequest request = OpenOf("narrow");
  request.mutable_members(0)->mutable_segments()->set_exp_avg_sq(v1::DATA_TYPE_FLOAT16);
  grpc::Status status = client.Open(request, opened);
  INFO(status.error_message());
  REQUIRE(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  REQUIRE(Has(status.error_message(), "exp_avg_sq"));
  request.mutable_members(0)->mutable_segments()->set_exp_avg_sq(v1::DATA_TYPE_FLOAT8_E5M2);
  REQUIRE(client.Open(request, opened).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("Open: another device or profile than the daemon has is refused", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenResponse opened;
  v1::OpenRequest request = OpenOf("gpu");
  request.set_device("GPU-00000000-0000-0000-0000-000000000000");
  REQUIRE(Has(client.Open(request, opened).error_message(), "host"));
  request.set_device("host");
  request.set_profile(v1::PROFILE_TE);
  REQUIRE(Has(client.Open(request, opened).error_message(), "PROFILE_TE"));
}

TEST_CASE("Open: a hundred thousand tensors with long names fit in one call", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenRequest request = OpenOf("many", 0);
  for (int i = 0; i < 100000; ++i) {
    v1::Tensor* tensor = request.add_tensors();
    tensor->set_name(absl::StrCat("model.layers.", i, ".", std::string(80, 'w')));
    tensor->add_shape(4);
    tensor->set_parameter_type(v1::DATA_TYPE_BFLOAT16);
  }
  v1::OpenResponse opened;
  const grpc::Status status = client.Open(request, opened);
  INFO(status.error_message());
  REQUIRE(status.ok());
  REQUIRE(opened.tensor_index_size() == 100000);
}

TEST_CASE("fd.sock: the ring's memory cannot be truncated by the client", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenResponse opened;
  REQUIRE(client.Open(OpenOf("ring"), opened).ok());
  client.Attach(opened);
  v1::DescriptorReply reply = {};
  const std::vector<base::UniqueFd> ring =
      client.Ask(opened, v1::DESCRIPTOR_REQUEST_TAKE_RING, 0, -1, reply);
  REQUIRE(reply.code == 0);
  REQUIRE(ring.size() == 4);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(::ftruncate(ring[static_cast<size_t>(i)].get(), 0) != 0);
    REQUIRE(errno == EPERM);
    REQUIRE(::fcntl(ring[static_cast<size_t>(i)].get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  }
  client.Close(opened);
}

TEST_CASE("fd.sock: descriptors of another kind than was said are refused", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenResponse opened;
  REQUIRE(client.Open(OpenOf("kinds"), opened).ok());
  const base::UniqueFd memory(::memfd_create("memory", MFD_CLOEXEC));
  v1::DescriptorReply reply = {};
  client.Ask(opened, v1::DESCRIPTOR_REQUEST_OFFER, v1::DESCRIPTOR_KIND_FILE, memory.get(), reply);
  REQUIRE(reply.code == static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  REQUIRE(Has(reply.message, "a memfd"));
  client.Ask(opened, v1::DESCRIPTOR_REQUEST_OFFER, v1::DESCRIPTOR_KIND_PIDFD, memory.get(), reply);
  REQUIRE(reply.code == static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  v1::OpenResponse stranger = opened;
  (*stranger.mutable_token())[0] = static_cast<char>(stranger.token()[0] ^ 1);
  client.Ask(stranger, v1::DESCRIPTOR_REQUEST_TAKE_RING, 0, -1, reply);
  REQUIRE(reply.code == static_cast<int>(grpc::StatusCode::PERMISSION_DENIED));
}

TEST_CASE("Session: the end of its stream ends it, and it is told of a takeover", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  RawClient client(daemon);
  v1::OpenResponse opened;
  REQUIRE(client.Open(OpenOf("stream"), opened).ok());
  grpc::ClientContext context;
  const auto stream = client.stub->Session(&context);
  v1::SessionRequest request;
  request.set_session(opened.session());
  v1::SessionEvent event;
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&event));
  REQUIRE(event.has_accepted());
  REQUIRE(stream->Write(request));
  REQUIRE(stream->Read(&event));
  REQUIRE(event.has_renewed());
  v1::OpenRequest again = OpenOf("stream");
  again.set_takeover(true);
  v1::OpenResponse second;
  REQUIRE(client.Open(again, second).ok());
  REQUIRE(stream->Read(&event));
  REQUIRE(Has(event.ended().reason(), "took the store over"));
  REQUIRE_FALSE(stream->Read(&event));
  REQUIRE(stream->Finish().ok());
  {
    grpc::ClientContext other;
    const auto short_lived = client.stub->Session(&other);
    request.set_session(second.session());
    REQUIRE(short_lived->Write(request));
    REQUIRE(short_lived->Read(&event));
    short_lived->WritesDone();
    while (short_lived->Read(&event)) {
    }
    short_lived->Finish();
  }
  // Free again without a takeover: the end of the stream ended the session.
  v1::OpenResponse third;
  REQUIRE(client.Open(OpenOf("stream"), third).ok());
}

}  // namespace
}  // namespace moment::e2e
