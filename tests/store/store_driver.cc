#include "tests/store/store_driver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/store/checksum.h"
#include "daemon/store/commit_rules.h"
#include "daemon/store/file_access.h"
#include "daemon/store/layout_check.h"

namespace moment::store {
namespace {

uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::string StepId(uint64_t id) {
  std::string text(16, '\0');
  std::memcpy(text.data(), &id, sizeof(id));
  return text;
}

DrivenStep Describe(std::unique_ptr<Mutation> mutation, const ExpectedCommit& base,
                    std::shared_ptr<const Layout> layout, uint64_t sequence, bool due) {
  DrivenStep step;
  step.expected = base;
  step.expected.id = mutation->id();
  step.expected.sequence = sequence;
  step.expected.due = due;
  step.expected.blob = absl::StrCat("blob of ", mutation->id());
  step.state.id = mutation->id();
  step.state.sequence = sequence;
  step.state.due = due;
  step.state.step_id = StepId(mutation->id());
  step.state.layout = std::move(layout);
  step.state.images = mutation->images();
  step.state.blob = step.expected.blob;
  step.mutation = std::move(mutation);
  return step;
}

}  // namespace

Environment SimulatedEnvironment(io::SimulatedDisk& disk) {
  Environment environment;
  environment.files = &disk.files();
  environment.engine = &disk.engine();
  environment.direct_io = true;
  environment.state_directory = kTestStateDirectory;
  return environment;
}

v1::Member MakeMember(const std::string& name) {
  v1::Member member;
  member.set_name(name);
  return member;
}

v1::Tensor MakeTensor(const std::string& name, uint32_t member, std::vector<uint64_t> shape) {
  v1::Tensor tensor;
  tensor.set_name(name);
  tensor.set_member(member);
  tensor.set_parameter_type(v1::DATA_TYPE_FLOAT32);
  for (const uint64_t extent : shape) {
    tensor.add_shape(extent);
  }
  return tensor;
}

OpenParameters SmallStore(v1::Resume resume) {
  OpenParameters parameters;
  parameters.name.set_job("job");
  parameters.name.set_role("model");
  parameters.members = {MakeMember("opt0_0"), MakeMember("opt0_1")};
  parameters.members[1].mutable_segments()->set_exp_avg(v1::DATA_TYPE_BFLOAT16);
  parameters.tensors = {MakeTensor("weight", 0, {20, 100}), MakeTensor("bias", 0, {7}),
                        MakeTensor("none", 0, {0, 3}), MakeTensor("expert", 1, {33})};
  parameters.resume = resume;
  parameters.bucket_elements = 1500;
  parameters.blob_limit_bytes = 1024;
  return parameters;
}

std::vector<std::byte> SegmentContent(const BucketGeometry& geometry, int segment, uint64_t seed,
                                      bool moments_zero) {
  std::vector<std::byte> bytes(geometry.segments[segment].length_bytes, std::byte{0});
  if (segment > 0 && moments_zero) {
    return bytes;
  }
  const uint64_t used = geometry.elements * SizeBytes(geometry.segments[segment].type);
  for (uint64_t at = 0; at < used; at += 8) {
    const uint64_t word = Mix(seed ^ Mix(at * 3 + static_cast<uint64_t>(segment)));
    std::memcpy(bytes.data() + at, &word, std::min<uint64_t>(8, used - at));
  }
  return bytes;
}

absl::StatusOr<DrivenStep> StoreDriver::BeginRefresh(uint64_t sequence) {
  const size_t buckets = store_.layout()->buckets().size();
  MOMENT_ASSIGN_OR_RETURN(
      std::unique_ptr<Mutation> mutation,
      store_.Begin(nullptr, std::vector<bool>(buckets, true), std::vector<bool>(buckets, true)));
  ExpectedCommit expected;
  expected.t.assign(static_cast<size_t>(store_.layout()->proto().tensors_size()), 0);
  expected.moments_zero.assign(buckets, true);
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    expected.seeds.push_back(Mix(mutation->id() * 100 + bucket));
    expected.written_by.push_back(mutation->id());
  }
  DrivenStep step = Describe(std::move(mutation), expected, store_.layout(), sequence, true);
  step.state.t = expected.t;
  return step;
}

absl::StatusOr<DrivenStep> StoreDriver::BeginStep(const DrivenStep& base, uint64_t commit_every,
                                                  std::vector<bool> rewritten) {
  const uint64_t sequence = base.state.sequence + 1;
  return BeginStepBehind(base.state, base.expected, sequence, IsDue(sequence, commit_every),
                         std::move(rewritten));
}

absl::StatusOr<DrivenStep> StoreDriver::BeginStepBehind(const State& base,
                                                        const ExpectedCommit& expected,
                                                        uint64_t sequence, bool due,
                                                        std::vector<bool> rewritten) {
  const size_t buckets = base.layout->buckets().size();
  if (rewritten.empty()) {
    rewritten.assign(buckets, true);
  }
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Mutation> mutation,
                          store_.Begin(&base, rewritten, std::vector<bool>(buckets, false)));
  const uint64_t id = mutation->id();
  DrivenStep step = Describe(std::move(mutation), expected, base.layout, sequence, due);
  const bool any = std::find(rewritten.begin(), rewritten.end(), true) != rewritten.end();
  for (uint64_t& t : step.expected.t) {
    t += any ? 1 : 0;
  }
  step.state.t = step.expected.t;
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    if (rewritten[bucket]) {
      step.expected.seeds[bucket] = Mix(id * 100 + bucket);
      step.expected.written_by[bucket] = id;
      step.expected.moments_zero[bucket] = false;
    }
  }
  return step;
}

absl::Status StoreDriver::WriteBuckets(DrivenStep& step, size_t first, size_t last) {
  for (size_t bucket = first; bucket < last; ++bucket) {
    if (step.mutation->rewritten()[bucket]) {
      MOMENT_RETURN_IF_ERROR(WriteImage(*step.mutation->images()[bucket],
                                        step.state.layout->buckets()[bucket],
                                        step.expected.seeds[bucket]));
    }
  }
  return absl::OkStatus();
}

absl::Status StoreDriver::WriteAll(DrivenStep& step) {
  return WriteBuckets(step, 0, step.state.images.size());
}

absl::Status StoreDriver::WriteImage(BucketImage& image, const BucketGeometry& geometry,
                                     uint64_t seed) {
  for (int segment = 0; segment < kSegmentCount; ++segment) {
    const SegmentGeometry& place = geometry.segments[segment];
    const std::vector<std::byte> bytes =
        SegmentContent(geometry, segment, seed, image.moments_zero());
    const bool already_zero = segment > 0 && image.moments_zero() && image.fresh();
    if (!already_zero) {
      MOMENT_RETURN_IF_ERROR(
          WriteAligned(engine_, image.file(), place.offset,
                       {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    }
    for (uint64_t unit = 0; unit < place.units; ++unit) {
      const uint64_t at = unit * kChecksumUnitBytes;
      const uint64_t length = std::min(kChecksumUnitBytes, place.length_bytes - at);
      image.set_checksum(place.first_checksum + unit,
                         Xxh64(std::span<const std::byte>(bytes).subspan(at, length)));
    }
  }
  return absl::OkStatus();
}

absl::Status StoreDriver::Commit(DrivenStep& step) {
  return store_.Commit(std::move(step.mutation), step.state);
}

absl::StatusOr<ExpectedCommit> StoreDriver::RefreshAndStep(uint64_t count) {
  MOMENT_ASSIGN_OR_RETURN(DrivenStep step, BeginRefresh(0));
  MOMENT_RETURN_IF_ERROR(WriteAll(step));
  MOMENT_RETURN_IF_ERROR(Commit(step));
  for (uint64_t i = 1; i <= count; ++i) {
    MOMENT_RETURN_IF_ERROR(store_.Drop(i));
    MOMENT_ASSIGN_OR_RETURN(DrivenStep next, BeginStep(step));
    MOMENT_RETURN_IF_ERROR(WriteAll(next));
    MOMENT_RETURN_IF_ERROR(Commit(next));
    step = std::move(next);
  }
  return step.expected;
}

std::string CompareFile(io::IoEngine& engine, io::File& file, const BucketGeometry& geometry,
                        uint64_t seed, bool moments_zero) {
  for (int segment = 0; segment < kSegmentCount; ++segment) {
    const std::vector<std::byte> bytes = SegmentContent(geometry, segment, seed, moments_zero);
    const absl::StatusOr<base::AlignedBuffer> read =
        ReadAligned(engine, file, geometry.segments[segment].offset, bytes.size());
    if (!read.ok()) {
      return std::string(read.status().message());
    }
    if (!std::equal(bytes.begin(), bytes.end(), read->span().begin())) {
      return absl::StrCat(file.path(), ", segment ", SegmentName(segment), ": other bytes");
    }
  }
  return "";
}

std::string CompareState(io::IoEngine& engine, const State& state, const ExpectedCommit& expected) {
  if (state.id != expected.id || state.sequence != expected.sequence || state.due != expected.due ||
      state.blob != expected.blob || state.t != expected.t) {
    return absl::StrCat("id ", state.id, ", sequence ", state.sequence, ", due ", state.due,
                        ", blob '", state.blob, "' instead of id ", expected.id, ", sequence ",
                        expected.sequence, ", due ", expected.due, ", blob '", expected.blob, "'");
  }
  for (size_t bucket = 0; bucket < state.images.size(); ++bucket) {
    const BucketImage& image = *state.images[bucket];
    const BucketGeometry& geometry = state.layout->buckets()[bucket];
    if (image.written_by() != expected.written_by[bucket] ||
        image.moments_zero() != expected.moments_zero[bucket]) {
      return absl::StrCat("bucket ", bucket, " written by ", image.written_by(), " instead of ",
                          expected.written_by[bucket]);
    }
    const std::string problem = CompareFile(engine, image.file(), geometry, expected.seeds[bucket],
                                            expected.moments_zero[bucket]);
    if (!problem.empty()) {
      return absl::StrCat("bucket ", bucket, ": ", problem, " than id ",
                          expected.written_by[bucket], " wrote");
    }
  }
  return "";
}

}  // namespace moment::store
