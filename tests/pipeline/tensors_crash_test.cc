// Power cut between every two operations of the changes by tensor: what opens is the state before
// the change or the one after it, whole.
#include <functional>
#include <string>

#include "tests/pipeline/rig.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

using device::DataType;
using device::kExpAvg;
using device::kExpAvgSq;
using device::kMain;

// Buckets of one chunk each; one tensor reaches over two of them.
RigOptions Small(uint64_t commit_every) {
  RigOptions options;
  options.sizes = {700, 9, 0, 500};
  options.bucket_elements = 600;
  options.commit_every = commit_every;
  options.host_memory_bytes = uint64_t{64} << 20;
  options.trainer.slot_bytes = 64 << 10;
  return options;
}

// A change: of the reference, and of the store. `rig.trainer` has the buffers of both.
struct Change {
  std::string name;
  std::function<void(Reference&)> expect;
  std::function<absl::Status(Rig&)> run;
};

std::vector<std::byte> Values(size_t tensor, const Rig& rig) {
  return RandomValues(900 + tensor, rig.options.sizes[tensor], DataType::kFloat32);
}

WriteParameters AccessTo(const Rig& rig, const std::vector<size_t>& tensors,
                         std::initializer_list<int> segments, Access access) {
  WriteParameters write;
  write.tensors.resize(rig.options.sizes.size());
  for (const size_t tensor : tensors) {
    for (const int segment : segments) {
      write.tensors[tensor].access[segment] = access;
    }
  }
  return write;
}

// Mains and a moment of tensors in every bucket, and t.
Change WriteSome(const RigOptions& options) {
  const std::vector<size_t> written = {0, 3};
  return {"write",
          [=](Reference& reference) {
            for (const size_t tensor : written) {
              const auto values =
                  RandomValues(900 + tensor, options.sizes[tensor], DataType::kFloat32);
              reference.Write(tensor, kMain, values, DataType::kFloat32);
              reference.Write(tensor, kExpAvg, values, DataType::kFloat32);
            }
            reference.SetT(0, 41);
          },
          [=](Rig& rig) {
            WriteParameters write = AccessTo(rig, written, {kMain, kExpAvg}, Access::kBuffer);
            write.t = {{0, 41}};
            write.binding = rig.trainer->binding;
            for (auto& segment : rig.trainer->segments) {
              segment.resize(rig.options.sizes.size());
              for (const size_t tensor : written) {
                segment[tensor] = Values(tensor, rig);
              }
            }
            return rig.pipeline->Write(write).status();
          }};
}

Change ResetAll(const RigOptions& options) {
  return {
      "reset of all moments",
      [=](Reference& reference) {
        for (size_t tensor = 0; tensor < options.sizes.size(); ++tensor) {
          reference.WriteZeros(tensor, kExpAvg);
          reference.WriteZeros(tensor, kExpAvgSq);
          reference.SetT(tensor, 0);
        }
      },
      [](Rig& rig) {
        WriteParameters write = AccessTo(rig, {0, 1, 2, 3}, {kExpAvg, kExpAvgSq}, Access::kZeros);
        write.t = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
        return rig.pipeline->Write(write).status();
      }};
}

Change ResetOne() {
  return {"reset of one tensor's moments",
          [](Reference& reference) {
            reference.WriteZeros(1, kExpAvg);
            reference.WriteZeros(1, kExpAvgSq);
            reference.SetT(1, 0);
          },
          [](Rig& rig) {
            WriteParameters write = AccessTo(rig, {1}, {kExpAvg, kExpAvgSq}, Access::kZeros);
            write.t = {{1, 0}};
            return rig.pipeline->Write(write).status();
          }};
}

Change SetT() {
  return {"t alone", [](Reference& reference) { reference.SetT(3, 12); },
          [](Rig& rig) {
            WriteParameters write = AccessTo(rig, {}, {}, Access::kZeros);
            write.t = {{3, 12}};
            return rig.pipeline->Write(write).status();
          }};
}

constexpr uint64_t kSteps = 3;

// A store after some steps, on a disk that is whole.
std::unique_ptr<io::SimulatedDisk> Prepare(const RigOptions& options, Reference* stepped) {
  io::SimulatedDisk disk;
  Machine machine(disk, options);
  Rig rig(machine, options);
  REQUIRE(rig.Open() == absl::OkStatus());
  REQUIRE(rig.Fill() == absl::OkStatus());
  for (uint64_t s = 1; s <= kSteps; ++s) {
    REQUIRE(rig.Step(s).ok());
  }
  REQUIRE(rig.pipeline->Drain().ok());
  *stepped = rig.reference;
  rig.Close();
  return disk.AfterCrash(1);
}

// One change, with the power cut before operation `cut` (0: never); then whether what opens is one
// of the two states, and which.
class Trial {
 public:
  Trial(const io::SimulatedDisk& prepared, const RigOptions& options, const Change& change,
        const Reference& before)
      : options_(options),
        change_(change),
        before_(before),
        after_(before),
        disk_(prepared.AfterCrash(1)) {
    change.expect(after_);
  }

  // Operations up to the change, and with it.
  struct Counts {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  Counts Run(uint64_t cut) {
    Machine machine(*disk_, options_);
    Rig rig(machine, options_);
    rig.trainer->parameters.clear();
    for (size_t i = 0; i < options_.sizes.size(); ++i) {
      rig.trainer->parameters.push_back(before_.Parameter(i));
    }
    Counts counts;
    if (cut != 0) {
      disk_->CutPowerBefore(cut);
    }
    if (rig.Open().ok()) {
      counts.first = disk_->operations() + 1;
      acknowledged_ = change_.run(rig).ok();
      counts.last = disk_->operations();
    }
    return counts;
  }
  bool acknowledged() const { return acknowledged_; }

  // "" if a crash state opens at a state that may be there, and steps on from it.
  std::string Check(uint64_t choice, bool* found_after) const {
    const auto crashed = disk_->AfterCrash(choice);
    Machine machine(*crashed, options_);
    Rig rig(machine, options_);
    if (const absl::Status status = rig.Open(); !status.ok()) {
      return std::string(status.message());
    }
    if (rig.sequence() != kSteps) {
      return "sequence " + std::to_string(rig.sequence());
    }
    rig.reference = after_;
    *found_after = rig.FilesDiffer().empty();
    if (!*found_after) {
      rig.reference = before_;
    }
    if (std::string problem = rig.FilesDiffer(); !problem.empty()) {
      return "neither state: " + problem;
    }
    if (acknowledged_ && !*found_after) {
      return "the acknowledged change is gone";
    }
    return StepOn(rig);
  }

 private:
  static std::string StepOn(Rig& rig) {
    rig.trainer->parameters.clear();
    for (size_t i = 0; i < rig.options.sizes.size(); ++i) {
      rig.reference.Materialize(i);
      rig.trainer->parameters.push_back(std::vector<std::byte>(rig.reference.Parameter(i).size()));
    }
    if (!rig.pipeline->Materialize({}).ok() || !rig.Step(kSteps + 1).ok() ||
        !rig.pipeline->Flush(kSteps + 1).ok()) {
      return "it does not step on";
    }
    return rig.ParametersDiffer() + rig.FilesDiffer();
  }

  const RigOptions options_;
  const Change& change_;
  const Reference before_;
  Reference after_;
  const std::unique_ptr<io::SimulatedDisk> disk_;
  bool acknowledged_ = false;
};

void CutEverywhere(uint64_t commit_every, const Change& change) {
  const RigOptions options = Small(commit_every);
  Reference stepped(options.sizes, options.types);
  const auto prepared = Prepare(options, &stepped);
  Trial whole(*prepared, options, change, stepped);
  const Trial::Counts counts = whole.Run(0);
  INFO(change.name << ", commit_every " << commit_every << ", operations " << counts.first << " to "
                   << counts.last);
  REQUIRE(whole.acknowledged());
  REQUIRE(counts.last >= counts.first + 2);
  uint64_t before = 0;
  uint64_t after = 0;
  for (uint64_t cut = counts.first; cut <= counts.last + 1; ++cut) {
    Trial trial(*prepared, options, change, stepped);
    trial.Run(cut);
    for (uint64_t choice = 0; choice < 10; ++choice) {
      INFO("power cut before operation " << cut << ", crash state " << choice);
      bool found_after = false;
      REQUIRE(trial.Check(choice < 2 ? choice : choice + cut * 100, &found_after) == "");
      ++(found_after ? after : before);
    }
  }
  CHECK(before > 0);
  CHECK(after > 0);
}

TEST_CASE("Crash: power cut anywhere in a write of tensors leaves the state before or after it",
          "[pipeline]") {
  const uint64_t commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  CutEverywhere(commit_every, WriteSome(Small(commit_every)));
}

TEST_CASE("Crash: power cut anywhere in a reset of moments leaves the state before or after it",
          "[pipeline]") {
  CutEverywhere(1, ResetAll(Small(1)));
  CutEverywhere(1, ResetOne());
}

TEST_CASE("Crash: power cut anywhere in a change of t alone leaves the state before or after it",
          "[pipeline]") {
  CutEverywhere(1, SetT());
}

}  // namespace
}  // namespace moment::pipeline
