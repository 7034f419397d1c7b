#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/store/bucket_plan.h"
#include "daemon/store/bytes.h"
#include "daemon/store/checksum_table.h"
#include "daemon/store/commit_record.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/safetensors_header.h"
#include "tests/store/store_driver.h"
#include "tests/support/catch.h"

// The formats as they are on disks: these files never change, or what they pin is another version.
// MOMENT_WRITE_GOLDEN=1 writes those that are missing.
namespace moment::store {
namespace {

std::string GoldenPath(const std::string& name) {
  return std::string(MOMENT_GOLDEN_DIRECTORY) + "/" + name;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The content of a golden file; writes it if it is missing and that was asked for. JSON is compared
// by what it says: its spaces are the library's.
std::string Golden(const std::string& name, const std::string& bytes) {
  const std::string golden = ReadFile(GoldenPath(name));
  if (golden.empty() && std::getenv("MOMENT_WRITE_GOLDEN") != nullptr) {
    std::ofstream(GoldenPath(name), std::ios::binary) << bytes;
    return bytes;
  }
  return golden;
}

void RequireGolden(const std::string& name, const std::string& bytes) {
  const std::string golden = Golden(name, bytes);
  INFO(name);
  CHECK(bytes.size() == golden.size());
  CHECK((bytes == golden));
}

v1::Layout GoldenLayout() {
  const OpenParameters parameters = SmallStore();
  LayoutRequest request;
  request.members = parameters.members;
  request.tensors = parameters.tensors;
  request.bucket_elements = parameters.bucket_elements;
  v1::ShardPiece* piece = request.tensors[1].mutable_shard()->add_pieces();
  piece->set_key("model.bias");
  piece->add_global_shape(14);
  piece->add_offset(7);
  piece->add_extent(7);
  piece->set_flat_count(7);
  return PlanLayout(nullptr, request);
}

v1::CommitRecord GoldenRecord() {
  v1::CommitRecord record;
  record.set_id(12);
  record.set_sequence(9);
  record.set_due(true);
  record.set_step_id("0123456789abcdef");
  record.set_layout_digest(LayoutDigest(GoldenLayout()));
  record.set_commit_every(1);
  for (uint32_t i = 0; i < 3; ++i) {
    v1::BucketImage* bucket = record.add_buckets();
    bucket->set_file(i);
    bucket->set_checksums_digest(0x0123456789abcdef + i);
    bucket->set_written_by(12 - i);
    bucket->set_moments_zero(i == 2);
  }
  v1::TensorSteps* steps = record.add_steps();
  steps->set_count(4);
  steps->set_t(9);
  v1::Group* group = record.add_groups();
  group->mutable_hyperparameters()->set_lr(1e-3);
  group->mutable_hyperparameters()->set_beta1(0.9);
  group->mutable_tensors()->add_runs()->set_count(4);
  record.set_blob("blob");
  record.set_unix_time_ns(1'700'000'000'000'000'000);
  record.set_store_uuid("00112233445566778899aabbccddeeff");
  return record;
}

TEST_CASE("Golden: the layout file", "[store]") {
  const v1::Layout layout = GoldenLayout();
  CHECK(LayoutDigest(layout) == 0xd630227955f0a2feU);
  const auto read = ReadLayoutText("layout.json", Golden("layout.json", WriteLayoutText(layout)),
                                   LayoutDigest(layout));
  REQUIRE(read.ok());
  CHECK(read->SerializeAsString() == layout.SerializeAsString());
}

TEST_CASE("Golden: the store file", "[store]") {
  v1::StoreFile store;
  store.set_format_version(kStoreFormatVersion);
  store.set_store_uuid("00112233445566778899aabbccddeeff");
  store.mutable_name()->set_job("a job/\xc3\xa4");
  store.mutable_name()->set_role("model");
  store.mutable_name()->set_rank(3);
  store.set_owner_uid(1000);
  const auto read = ReadStoreText("store.json", Golden("store.json", WriteStoreText(store)));
  REQUIRE(read.ok());
  CHECK(read->SerializeAsString() == store.SerializeAsString());
}

TEST_CASE("Golden: a pin's manifest", "[store]") {
  v1::PinManifest manifest;
  manifest.set_format_version(kPinFormatVersion);
  manifest.set_id("0123456789abcdef");
  manifest.mutable_owner()->set_session("00aa");
  manifest.mutable_owner()->set_pid(42);
  manifest.mutable_owner()->set_uid(1000);
  manifest.mutable_owner()->set_program("train.py");
  manifest.set_unix_time_ns(1'700'000'000'000'000'001);
  *manifest.mutable_commit() = GoldenRecord();
  manifest.mutable_commit()->clear_blob();
  const auto read = ReadPinText("manifest.json", Golden("manifest.json", WritePinText(manifest)));
  REQUIRE(read.ok());
  CHECK(read->SerializeAsString() == manifest.SerializeAsString());
}

TEST_CASE("Golden: a bucket's header", "[store]") {
  const v1::Layout layout = GoldenLayout();
  RequireGolden("bucket_header", BuildHeader(layout, layout.buckets(1)).bytes);
}

TEST_CASE("Golden: a checksum table", "[store]") {
  const std::vector<uint64_t> checksums = {1, 0xfedcba9876543210, 3};
  const ChecksumTableKey key{
      .store_uuid = "00112233445566778899aabbccddeeff", .bucket = 1, .file = 2, .id = 77};
  std::vector<std::byte> bytes(ChecksumTableBytes(checksums.size()));
  CHECK(WriteChecksumTable(key, checksums, bytes) == 0x6fa861b9ee33dd27U);
  RequireGolden("checksum_table", std::string(AsText(bytes)));
}

TEST_CASE("Golden: a commit record", "[store]") {
  const auto encoded = EncodeRecord(GoldenRecord(), 16'384);
  REQUIRE(encoded.ok());
  const std::string golden = ReadFile(GoldenPath("commit_record"));
  RequireGolden("commit_record", *encoded);
  RecordHeader header;
  REQUIRE(golden.size() == 4096);
  REQUIRE(DecodeRecordHeader(AsBytes(golden), header) == CopyState::kValid);
  v1::CommitRecord record;
  CHECK(DecodeRecordBody(header, AsBytes(golden).subspan(kRecordHeaderBytes, header.body_bytes),
                         record) == CopyState::kValid);
  CHECK(record.SerializeAsString() == GoldenRecord().SerializeAsString());
}

}  // namespace
}  // namespace moment::store
