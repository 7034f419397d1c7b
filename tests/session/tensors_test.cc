// The calls of a session that reach the state by tensor: checks, joining, ends.
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/session/tensor_access.h"
#include "tests/session/session_daemon.h"

namespace moment::session {
namespace {

using pipeline::Access;

v1::SegmentBuffers* AddBuffers(google::protobuf::RepeatedPtrField<v1::SegmentBuffers>& list,
                               const std::string& segment, uint32_t first, uint32_t count,
                               v1::DataType type = v1::DATA_TYPE_FLOAT32) {
  v1::SegmentBuffers* buffers = list.Add();
  buffers->set_segment(segment);
  buffers->set_type(type);
  v1::TensorRun* run = buffers->mutable_tensors()->add_runs();
  run->set_first(first);
  run->set_count(count);
  return buffers;
}

v1::ReadTensorRequest ReadOf(const std::string& segment, uint32_t first, uint32_t count) {
  v1::ReadTensorRequest request;
  request.set_operation("read");
  request.set_binding(7);
  AddBuffers(*request.mutable_buffers(), segment, first, count);
  return request;
}

v1::WriteTensorRequest WriteOf(const std::string& segment, uint32_t first, uint32_t count,
                               const std::string& operation = "write") {
  v1::WriteTensorRequest request;
  request.set_operation(operation);
  request.set_binding(8);
  AddBuffers(*request.mutable_buffers(), segment, first, count);
  return request;
}

void AddSteps(v1::WriteTensorRequest& request, uint32_t tensor, uint64_t t) {
  v1::ExpectedSteps* steps = request.add_steps();
  steps->set_t(t);
  v1::TensorRun* run = steps->mutable_tensors()->add_runs();
  run->set_first(tensor);
  run->set_count(1);
}

TEST_CASE("ReadTensor: asks the pipeline for what is listed and answers t of those tensors",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::ReadTensorRequest request = ReadOf("exp_avg", 1, 1);
  AddBuffers(*request.mutable_buffers(), "main", 1, 1, v1::DATA_TYPE_BFLOAT16);
  {
    absl::MutexLock lock(&daemon.opener.disk->mutex);
    daemon.opener.disk->t = {4, 5};
  }
  const v1::ReadTensorResponse response = session->ReadTensor(request).value();
  REQUIRE(response.applied().sequence() == 0);
  REQUIRE(response.steps_size() == 1);
  REQUIRE(response.steps(0).t() == 5);
  REQUIRE(response.steps(0).tensors().runs(0).first() == 1);
  absl::MutexLock lock(&daemon.opener.disk->mutex);
  const pipeline::ReadParameters read = daemon.opener.disk->last_read;
  REQUIRE(read.binding == 7);
  REQUIRE(read.tensors.size() == 2);
  REQUIRE_FALSE(read.tensors[0].any());
  REQUIRE(read.tensors[1].access[device::kExpAvg] == Access::kBuffer);
  REQUIRE(read.tensors[1].types[device::kExpAvg] == device::DataType::kFloat32);
  REQUIRE(read.tensors[1].types[device::kMain] == device::DataType::kBFloat16);
  REQUIRE(read.tensors[1].access[device::kExpAvgSq] == Access::kNone);
}

TEST_CASE("ReadTensor: without buffers it answers t alone and asks for nothing", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::ReadTensorRequest request;
  request.set_operation("steps");
  const v1::ReadTensorResponse response = session->ReadTensor(request).value();
  REQUIRE(response.steps_size() == 1);  // both tensors have the same
  REQUIRE(response.steps(0).tensors().runs(0).count() == 2);
  REQUIRE(daemon.opener.disk->Count("read") == 0);
}

TEST_CASE("WriteTensor: zeros, buffers and t come to the pipeline together", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::WriteTensorRequest request = WriteOf("main", 0, 2);
  AddBuffers(*request.mutable_buffers(), "exp_avg_sq", 1, 1)->set_zeros(true);
  AddSteps(request, 0, 9);
  REQUIRE(session->WriteTensor(request).value().commit().id() == 1);
  absl::MutexLock lock(&daemon.opener.disk->mutex);
  const pipeline::WriteParameters write = daemon.opener.disk->last_write;
  REQUIRE(write.binding == 8);
  REQUIRE(write.tensors[0].access[device::kMain] == Access::kBuffer);
  REQUIRE(write.tensors[1].access[device::kExpAvgSq] == Access::kZeros);
  REQUIRE(write.t == std::vector<std::pair<uint32_t, uint64_t>>{{0, 9}});
}

TEST_CASE("ResetMoments: both moments of the listed tensors become zero, and their t",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::ResetMomentsRequest request;
  request.set_operation("one");
  v1::TensorRun* run = request.mutable_tensors()->add_runs();
  run->set_first(1);
  run->set_count(1);
  REQUIRE(session->ResetMoments(request).ok());
  {
    absl::MutexLock lock(&daemon.opener.disk->mutex);
    const pipeline::WriteParameters write = daemon.opener.disk->last_write;
    REQUIRE_FALSE(write.tensors[0].any());
    REQUIRE(write.tensors[1].access[device::kMain] == Access::kNone);
    REQUIRE(write.tensors[1].access[device::kExpAvg] == Access::kZeros);
    REQUIRE(write.tensors[1].access[device::kExpAvgSq] == Access::kZeros);
    REQUIRE(write.t == std::vector<std::pair<uint32_t, uint64_t>>{{1, 0}});
  }
  request.set_operation("all");
  request.clear_tensors();
  REQUIRE(session->ResetMoments(request).ok());
  absl::MutexLock lock(&daemon.opener.disk->mutex);
  REQUIRE(daemon.opener.disk->last_write.t.size() == 2);
}

TEST_CASE("Digest: of the listed tensors, with their t, or of all", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::DigestRequest request;
  request.set_operation("all");
  REQUIRE(session->Digest(request).value().tensors_size() == 2);
  request.set_operation("one");
  v1::TensorRun* run = request.mutable_tensors()->add_runs();
  run->set_first(1);
  run->set_count(1);
  {
    absl::MutexLock lock(&daemon.opener.disk->mutex);
    daemon.opener.disk->t = {4, 5};
  }
  const v1::DigestResponse response = session->Digest(request).value();
  REQUIRE(response.tensors_size() == 1);
  const v1::TensorDigest& digest = response.tensors(0);
  REQUIRE(digest.tensor() == 1);
  REQUIRE(digest.main() == 11);
  REQUIRE(digest.exp_avg() == 21);
  REQUIRE(digest.exp_avg_sq() == 31);
  REQUIRE(digest.t() == 5);
}

TEST_CASE("Tensors: what cannot be is refused naming tensor and segment, before anything runs",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  const auto refused = [&](const absl::Status& status, const std::string& text) {
    INFO(status.ToString());
    return absl::IsInvalidArgument(status) && Names(status, text);
  };
  v1::ReadTensorRequest read = ReadOf("scales", 0, 1);
  REQUIRE(refused(session->ReadTensor(read).status(), "no segment \"scales\""));
  read = ReadOf("main", 1, 2);
  read.set_operation("beyond");
  REQUIRE(refused(session->ReadTensor(read).status(), "tensor 2 does not exist"));
  read = ReadOf("main", 0, 1);
  read.set_operation("zeros");
  read.mutable_buffers(0)->set_zeros(true);
  REQUIRE(refused(session->ReadTensor(read).status(), "main is listed without buffers"));
  v1::WriteTensorRequest write = WriteOf("exp_avg", 0, 2, "twice");
  AddBuffers(*write.mutable_buffers(), "exp_avg", 1, 1)->set_zeros(true);
  REQUIRE(refused(session->WriteTensor(write).status(),
                  "exp_avg of tensor 1 (weight1) is listed twice"));
  write = WriteOf("exp_avg", 0, 1, "type");
  write.mutable_buffers(0)->set_type(v1::DATA_TYPE_FLOAT8_E4M3);
  REQUIRE(refused(session->WriteTensor(write).status(), "FLOAT8_E4M3"));
  write = WriteOf("exp_avg", 0, 1, "t beyond");
  AddSteps(write, 2, 1);
  REQUIRE(refused(session->WriteTensor(write).status(), "tensor 2 does not exist"));
  write = WriteOf("exp_avg", 0, 1, "t twice");
  AddSteps(write, 1, 1);
  AddSteps(write, 1, 2);
  REQUIRE(refused(session->WriteTensor(write).status(), "t of tensor 1 (weight1) is given twice"));
  write = WriteOf("exp_avg", 0, 1, "t large");
  AddSteps(write, 1, (uint64_t{1} << 53) + 1);
  REQUIRE(refused(session->WriteTensor(write).status(), "above 2^53"));
  write = WriteOf("exp_avg", 0, 1, "");
  REQUIRE(refused(session->WriteTensor(write).status(), "operation id"));
  REQUIRE(daemon.opener.disk->Count("read") == 0);
  REQUIRE(daemon.opener.disk->Count("write") == 0);
}

TEST_CASE("Tensors: buffers need an Attach, everything needs a state", "[session]") {
  Daemon daemon;
  const auto session = daemon.Open();
  REQUIRE(absl::IsFailedPrecondition(session->ReadTensor(ReadOf("main", 0, 1)).status()));
  Daemon::Attach(*session);
  v1::ReadTensorRequest steps;
  steps.set_operation("steps");
  for (const absl::Status& status :
       {session->ReadTensor(ReadOf("main", 0, 1)).status(), session->ReadTensor(steps).status(),
        session->WriteTensor(WriteOf("main", 0, 1)).status(), session->Digest({}).status()}) {
    REQUIRE_FALSE(status.ok());
  }
  REQUIRE(Names(session->ReadTensor(steps).status(), "empty"));
  v1::RefreshRequest refresh;
  refresh.set_operation("fill");
  refresh.mutable_whole();
  REQUIRE(session->Refresh(refresh).ok());
  v1::DetachRequest detach;
  detach.set_generation(1);
  REQUIRE(session->Detach(detach).ok());
  REQUIRE(Names(session->WriteTensor(WriteOf("main", 0, 1)).status(), "Attach"));
  v1::WriteTensorRequest zeros = WriteOf("main", 0, 1, "zeros");
  zeros.mutable_buffers(0)->set_zeros(true);
  REQUIRE(session->WriteTensor(zeros).ok());
}

TEST_CASE("Tensors: those that are new to the store are refused until their Refresh", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  {
    absl::MutexLock lock(&daemon.opener.disk->mutex);
    daemon.opener.disk->added = {1};
  }
  v1::DigestRequest digest;
  digest.set_operation("digest");
  digest.mutable_tensors()->add_runs()->set_count(2);
  for (const absl::Status& status :
       {session->ReadTensor(ReadOf("main", 0, 2)).status(),
        session->WriteTensor(WriteOf("main", 1, 1)).status(), session->Digest(digest).status()}) {
    REQUIRE(absl::IsFailedPrecondition(status));
    REQUIRE(Names(status, "tensor 1 (weight1) is new"));
  }
  digest.set_operation("all that are there");
  digest.clear_tensors();
  REQUIRE(session->Digest(digest).value().tensors_size() == 1);
}

TEST_CASE("WriteTensor: its repetition joins it and gets the recorded commit", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  daemon.opener.disk->Hold();
  absl::StatusOr<v1::WriteTensorResponse> first;
  std::thread caller([&] { first = session->WriteTensor(WriteOf("main", 0, 1)); });
  daemon.opener.disk->AwaitStep();
  absl::StatusOr<v1::WriteTensorResponse> second;
  std::thread again([&] { second = session->WriteTensor(WriteOf("main", 0, 1)); });
  daemon.opener.disk->Release();
  caller.join();
  again.join();
  REQUIRE(first.value().commit().id() == second.value().commit().id());
  REQUIRE(session->WriteTensor(WriteOf("main", 0, 1)).ok());
  REQUIRE(daemon.opener.disk->Count("write") == 1);
  REQUIRE(session->GetOperation("write").value().has_write_tensor());
  v1::ReadTensorRequest read = ReadOf("main", 0, 1);
  read.set_operation("write");
  REQUIRE(Names(session->ReadTensor(read).status(), "is a write, not a read"));
}

TEST_CASE("WriteTensor: the session's end ends it with the reason", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  daemon.opener.disk->Hold();
  absl::Status status;
  std::thread caller([&] { status = session->WriteTensor(WriteOf("main", 0, 1)).status(); });
  daemon.opener.disk->AwaitStep();
  session->End(absl::FailedPreconditionError("it was tested"));
  caller.join();
  REQUIRE(absl::IsFailedPrecondition(status));
  REQUIRE(Names(status, "it was tested"));
  daemon.opener.disk->Release();
  daemon.AwaitEnd();
}

TEST_CASE("Operations: results are forgotten sooner when they are large", "[session]") {
  OperationTable table;
  const auto add = [&table](const std::string& id, int tensors) {
    auto operation = std::make_shared<Operation>(id, "digest");
    table.Add(operation);
    v1::Operation result;
    for (int i = 0; i < tensors; ++i) {
      result.mutable_digest()->add_tensors()->set_main(~uint64_t{0});
    }
    operation->Finish(absl::OkStatus(), std::move(result));
  };
  for (int i = 0; i < 8; ++i) {
    add(absl::StrCat(i), 300'000);  // more than 3 MB each
  }
  REQUIRE(table.Find("7").ok());
  REQUIRE(table.Find("5").ok());
  REQUIRE_FALSE(table.Find("1").ok());
  for (int i = 0; i < 40; ++i) {
    add(absl::StrCat("small", i), 1);
  }
  REQUIRE(table.Find("small0").ok());
}

}  // namespace
}  // namespace moment::session
