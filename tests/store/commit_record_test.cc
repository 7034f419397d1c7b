#include "daemon/store/commit_record.h"

#include "daemon/store/bytes.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

v1::CommitRecord SomeRecord() {
  v1::CommitRecord record;
  record.set_id(7);
  record.set_sequence(3);
  record.set_blob("blob");
  return record;
}

CopyState Decode(const std::string& bytes, v1::CommitRecord& record) {
  RecordHeader header;
  const CopyState state = DecodeRecordHeader(AsBytes(bytes), header);
  return state == CopyState::kValid
             ? DecodeRecordBody(
                   header, AsBytes(bytes).subspan(kRecordHeaderBytes, header.body_bytes), record)
             : state;
}

TEST_CASE("Record: what was encoded is decoded", "[store]") {
  const auto encoded = EncodeRecord(SomeRecord(), 8192);
  REQUIRE(encoded.ok());
  CHECK(encoded->size() == 4096);
  v1::CommitRecord record;
  REQUIRE(Decode(*encoded, record) == CopyState::kValid);
  CHECK(record.SerializeAsString() == SomeRecord().SerializeAsString());
}

TEST_CASE("Record: zeros are a copy that was never written", "[store]") {
  v1::CommitRecord record;
  CHECK(Decode(std::string(4096, '\0'), record) == CopyState::kBlank);
}

TEST_CASE("Record: an erased copy is told from a blank and from a damaged one", "[store]") {
  const std::string erased = EncodeErased(8192);
  CHECK(erased.size() == 4096);
  v1::CommitRecord record;
  CHECK(Decode(erased, record) == CopyState::kErased);
  for (size_t at = 0; at < kRecordHeaderBytes; ++at) {
    std::string flipped = erased;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    if (Decode(flipped, record) != CopyState::kDamaged) {
      FAIL("byte " << at);
    }
  }
}

TEST_CASE("Record: any flipped bit of header or body is damage", "[store]") {
  const std::string encoded = *EncodeRecord(SomeRecord(), 8192);
  const size_t used = kRecordHeaderBytes + SomeRecord().ByteSizeLong();
  for (size_t at = 0; at < used; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = encoded;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      v1::CommitRecord record;
      if (Decode(flipped, record) != CopyState::kDamaged) {
        FAIL("bit " << bit << " of byte " << at);
      }
    }
  }
}

TEST_CASE("Record: one that exceeds its room is refused", "[store]") {
  v1::CommitRecord record = SomeRecord();
  record.set_blob(std::string(4096, 'x'));
  CHECK(absl::IsInvalidArgument(EncodeRecord(record, 4096).status()));
  CHECK(EncodeRecord(record, 8192).ok());
}

TEST_CASE("Record: its room holds the largest record of a layout", "[store]") {
  v1::Layout layout;
  v1::CommitRecord record = SomeRecord();
  record.set_id(UINT64_MAX);
  record.set_store_uuid(std::string(32, 'a'));
  record.set_step_id(std::string(16, 'a'));
  record.set_blob(std::string(1000, 'b'));
  for (uint32_t i = 0; i < 300; ++i) {
    layout.add_tensors();
    layout.add_buckets();
    v1::BucketImage* bucket = record.add_buckets();
    bucket->set_file(UINT32_MAX);
    bucket->set_checksums_digest(1);
    bucket->set_written_by(UINT64_MAX);
    bucket->set_moments_zero(true);
    v1::TensorSteps* steps = record.add_steps();
    steps->set_first(UINT32_MAX);
    steps->set_count(UINT32_MAX);
    steps->set_t(UINT64_MAX);
    v1::Group* group = record.add_groups();
    v1::Hyperparameters* values = group->mutable_hyperparameters();
    values->set_lr(1);
    values->set_beta1(1);
    values->set_beta2(1);
    values->set_eps(1);
    values->set_weight_decay(1);
    values->set_mode(v1::ADAM_MODE_ADAM);
    values->set_no_bias_correction(true);
    values->set_maximize(true);
    values->set_gradient_scale(1);
    v1::TensorRun* run = group->mutable_tensors()->add_runs();
    run->set_first(UINT32_MAX);
    run->set_count(UINT32_MAX);
  }
  CHECK(EncodeRecord(record, RecordRoom(layout, 1000)).ok());
}

}  // namespace
}  // namespace moment::store
