// How chunks are cut for a GPU and what is copied; the conformance suite on simulated GPUs holds
// the results.
#include "cuda/piece.h"

#include <vector>

#include "cuda/adam_scalars.h"
#include "cuda/piece_plan.h"
#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

using device::ChunkOp;
using device::ChunkWork;
using device::DataType;
using device::Place;
using device::Run;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A chunk of runs of equal size in fp32, gradients and parameters one behind the other.
struct Fixture {
  Fixture(uint64_t run_count, uint64_t run_elements)
      : gradients(run_count * run_elements), parameters(run_count * run_elements) {
    for (uint64_t i = 0; i < run_count; ++i) {
      Run run;
      run.tensor = static_cast<uint32_t>(i);
      run.first = i * run_elements;
      run.count = run_elements;
      run.t = 1;
      run.gradient = gradients.data() + run.first;
      run.parameter = parameters.data() + run.first;
      runs.push_back(run);
    }
    work.elements = gradients.size();
    for (int s = 0; s < device::kSegmentCount; ++s) {
      segments[s].resize(work.elements);
      work.in.data[s] = work.out.data[s] = reinterpret_cast<std::byte*>(segments[s].data());
    }
    hyperparameters.resize(2);
    work.profile = device::Profile::kTorchCudaForeach;
    work.hyperparameters = hyperparameters;
    work.runs = runs;
  }

  void Plan(const Piece& piece, const RegisteredRanges& registered = {}) {
    const SlotLayout layout = MakeSlotLayout(16 * kMiB, 4096);
    tables.resize(layout.table_bytes);
    PlanPiece(work, piece, layout, registered, kSlotAddress, tables.data(), plan);
  }
  const KernelRun& TableRun(size_t index) const {
    return reinterpret_cast<const KernelRun*>(tables.data() + plan.runs_offset)[index];
  }

  static constexpr uint64_t kSlotAddress = uint64_t{1} << 40;
  std::vector<float> gradients;
  std::vector<float> parameters;
  std::vector<float> segments[device::kSegmentCount];
  std::vector<Run> runs;
  std::vector<device::Hyperparameters> hyperparameters;
  ChunkWork work;
  std::vector<std::byte> tables;
  PiecePlan plan;
};

std::vector<Piece> Cut(const ChunkWork& work, uint64_t data_bytes, uint32_t max_runs) {
  std::vector<Piece> pieces;
  for (PieceCursor cursor(work, {data_bytes, max_runs}); !cursor.done();) {
    pieces.push_back(cursor.Next());
  }
  return pieces;
}

TEST_CASE("PieceCursor: a chunk that fits is one piece", "[cuda]") {
  const Fixture fixture(3, 1000);
  const std::vector<Piece> pieces = Cut(fixture.work, kMiB, 16);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].count == 3000);
  CHECK(pieces[0].run_count == 3);
}

TEST_CASE("PieceCursor: a large chunk is cut evenly, at aligned elements", "[cuda]") {
  const Fixture fixture(1, 130'000);  // 2.6 MB with gradients and parameters
  const std::vector<Piece> pieces = Cut(fixture.work, kMiB, 16);
  REQUIRE(pieces.size() == 3);
  uint64_t position = 0;
  for (const Piece& piece : pieces) {
    CHECK(piece.first == position);
    CHECK(piece.first % kPieceAlignmentElements == 0);
    CHECK(piece.count * 20 <= kMiB);
    CHECK(piece.count > 130'000 / 3 - 500);
    CHECK(piece.count < 130'000 / 3 + 500);
    CHECK(piece.first_run == 0);
    CHECK(piece.run_count == 1);
    position += piece.count;
  }
  CHECK(position == 130'000);
}

TEST_CASE("PieceCursor: what lies on the GPU takes no room in the slot", "[cuda]") {
  Fixture fixture(1, 80'000);  // 0.96 MB of segments
  CHECK(Cut(fixture.work, kMiB, 16).size() == 2);
  fixture.runs[0].gradient_place = fixture.runs[0].parameter_place = Place::kDevice;
  CHECK(Cut(fixture.work, kMiB, 16).size() == 1);
}

TEST_CASE("PieceCursor: no piece has more runs than the tables", "[cuda]") {
  const Fixture fixture(10, 7);
  const std::vector<Piece> pieces = Cut(fixture.work, kMiB, 4);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].run_count == 4);
  CHECK(pieces[1].run_count == 4);
  CHECK(pieces[2].run_count == 2);
  CHECK(pieces[2].first == 56);
}

TEST_CASE("PlanPiece: neighbours in memory share a copy", "[cuda]") {
  Fixture fixture(50, 100);
  fixture.Plan({0, 5000, 0, 50});
  REQUIRE(fixture.plan.in.size() == 4);  // three segments, all gradients
  CHECK(fixture.plan.in[3].host == reinterpret_cast<std::byte*>(fixture.gradients.data()));
  CHECK(fixture.plan.in[3].length_bytes == 20'000);
  REQUIRE(fixture.plan.out.size() == 4);
  CHECK(fixture.plan.out[3].host == reinterpret_cast<std::byte*>(fixture.parameters.data()));
  CHECK(fixture.plan.out[3].length_bytes == 20'000);
}

TEST_CASE("PlanPiece: a gap is brought along, and never written", "[cuda]") {
  Fixture fixture(2, 100);
  fixture.runs[0].count = 92;  // 32 bytes between the two
  fixture.Plan({0, 200, 0, 2});
  REQUIRE(fixture.plan.in.size() == 4);
  CHECK(fixture.plan.in[3].length_bytes == 800);
  REQUIRE(fixture.plan.out.size() == 5);
  CHECK(fixture.plan.out[3].length_bytes == 368);
  CHECK(fixture.plan.out[4].length_bytes == 400);
}

TEST_CASE("PlanPiece: neighbours whose elements would be misaligned in the slot do not join",
          "[cuda]") {
  Fixture fixture(2, 101);
  fixture.runs[0].gradient_type = DataType::kBFloat16;  // ends in the middle of its last four bytes
  fixture.runs[1].gradient = reinterpret_cast<const std::byte*>(fixture.gradients.data()) + 204;
  fixture.Plan({0, 202, 0, 2});
  CHECK(fixture.plan.in.size() == 4);  // joined: 0 and 204
  fixture.runs[0].first = 1;           // placed 2 bytes above a multiple of 16
  fixture.runs[0].count = 100;
  fixture.Plan({0, 202, 0, 2});
  CHECK(fixture.plan.in.size() == 5);
  CHECK(fixture.TableRun(1).gradient_origin % 4 == 0);
}

TEST_CASE("PlanPiece: no copy reaches across the end of a registration", "[cuda]") {
  Fixture fixture(2, 100);
  RegisteredRanges registered;
  registered.Add(std::as_writable_bytes(std::span(fixture.gradients).first(100)));
  fixture.Plan({0, 200, 0, 2}, registered);
  CHECK(fixture.plan.in.size() == 5);
  CHECK(fixture.plan.out.size() == 4);
}

TEST_CASE("PlanPiece: gradients lie in the slot as the chunk's elements do", "[cuda]") {
  Fixture fixture(3, 101);
  // Apart from each other, so that each is placed by itself.
  std::vector<float> apart(1000);
  for (size_t i = 0; i < 3; ++i) {
    fixture.runs[i].gradient = apart.data() + i * 300 + i;
  }
  fixture.Plan({0, 303, 0, 3});
  for (size_t i = 0; i < 3; ++i) {
    CHECK(fixture.TableRun(i).gradient_origin % 16 == 0);
  }
}

TEST_CASE("PlanPiece: origins are where element 0 of the piece would lie", "[cuda]") {
  Fixture fixture(1, 1000);
  fixture.runs[0].gradient_place = Place::kDevice;
  fixture.Plan({512, 488, 0, 1});
  CHECK(fixture.TableRun(0).first == 0);
  CHECK(fixture.TableRun(0).end == 488);
  CHECK(fixture.TableRun(0).gradient_origin ==
        reinterpret_cast<uint64_t>(fixture.gradients.data() + 512));
  const HostCopy& out = fixture.plan.out.back();
  CHECK(fixture.TableRun(0).buffer_origin == Fixture::kSlotAddress + out.slot_offset);
  CHECK(out.host == reinterpret_cast<std::byte*>(fixture.parameters.data() + 512));
}

TEST_CASE("PlanPiece: neighbours with one step and group share their scalars", "[cuda]") {
  Fixture fixture(6, 100);
  fixture.runs[2].t = fixture.runs[3].t = 9;
  fixture.runs[5].hyperparameters = 1;
  fixture.Plan({0, 600, 0, 6});
  CHECK(fixture.plan.scalar_count == 4);
  const std::vector<uint32_t> expected = {0, 0, 1, 1, 2, 3};
  for (size_t i = 0; i < 6; ++i) {
    CHECK(fixture.TableRun(i).scalars == expected[i]);
  }
}

TEST_CASE("PlanPiece: Refresh in place leaves the moments alone, Materialize all segments",
          "[cuda]") {
  Fixture fixture(1, 100);
  fixture.work.op = ChunkOp::kRefresh;
  fixture.Plan({0, 100, 0, 1});
  CHECK(fixture.plan.in.size() == 2);  // mains, parameters
  CHECK(fixture.plan.out.size() == 1);
  fixture.work.op = ChunkOp::kMaterialize;
  fixture.Plan({0, 100, 0, 1});
  CHECK(fixture.plan.in.size() == 1);
  REQUIRE(fixture.plan.out.size() == 1);
  CHECK(fixture.plan.out[0].host == reinterpret_cast<std::byte*>(fixture.parameters.data()));
}

TEST_CASE("PlanPiece: moments that count as zero are cleared and not read", "[cuda]") {
  Fixture fixture(1, 100);
  fixture.work.moments_zero = true;
  fixture.work.in.data[device::kExpAvg] = fixture.work.in.data[device::kExpAvgSq] = nullptr;
  fixture.Plan({0, 100, 0, 1});
  CHECK(fixture.plan.in.size() == 2);  // mains, gradients
  CHECK(fixture.plan.cleared.size() == 2);
  CHECK(fixture.plan.out.size() == 4);
}

TEST_CASE("PlanPiece: kRead and kWrite bring the segments that buffers ask for, each by itself",
          "[cuda]") {
  Fixture fixture(2, 100);
  std::vector<uint16_t> moments(200);
  fixture.runs[0].buffers[device::kExpAvg] = moments.data();
  fixture.runs[0].buffer_types[device::kExpAvg] = DataType::kBFloat16;
  fixture.runs[1].buffers[device::kMain] = fixture.parameters.data();
  fixture.runs[1].buffers[device::kExpAvg] = moments.data() + 100;
  fixture.runs[1].buffer_types[device::kExpAvg] = DataType::kBFloat16;
  fixture.work.op = ChunkOp::kRead;
  fixture.Plan({0, 200, 0, 2});
  CHECK(fixture.plan.in.size() == 2);  // mains and first moments
  CHECK(fixture.plan.run_count == 3);
  CHECK(fixture.TableRun(0).segment == device::kExpAvg);
  CHECK(fixture.TableRun(1).segment == device::kMain);
  CHECK(fixture.TableRun(2).buffer_type == DataType::kBFloat16);
  CHECK(fixture.plan.out.size() == 3);
  fixture.work.op = ChunkOp::kWrite;
  fixture.Plan({0, 200, 0, 2});
  CHECK(fixture.plan.in.size() == 5);
  CHECK(fixture.plan.out.size() == 2);  // the second moments stay
  fixture.work.out.data[device::kExpAvgSq] = fixture.work.in.data[device::kMain];
  fixture.Plan({0, 200, 0, 2});
  CHECK(fixture.plan.out.size() == 3);  // they are copied along
}

TEST_CASE("PlanPiece: who sits out has no tiles and no copies", "[cuda]") {
  Fixture fixture(3, 5000);
  fixture.runs[1].participates = false;
  fixture.Plan({0, 15'000, 0, 3});
  CHECK(fixture.plan.run_count == 2);
  CHECK(fixture.plan.tile_count == 4);
  CHECK(fixture.plan.in.size() == 5);
  fixture.runs[0].participates = fixture.runs[2].participates = false;
  fixture.Plan({0, 15'000, 0, 3});
  CHECK(fixture.plan.tile_count == 0);
}

}  // namespace
}  // namespace moment::cuda
