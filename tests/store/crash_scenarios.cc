#include "tests/store/crash_scenarios.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/open.h"

namespace moment::store {
namespace {

// A store, its driver and the model that watches them.
class Watched {
 public:
  Watched(io::SimulatedDisk& disk, CrashModel& model) : disk_(disk), model_(model) {}

  absl::Status Open(const OpenParameters& parameters, const StoreFaults& faults) {
    MOMENT_ASSIGN_OR_RETURN(store_, OpenStore(SimulatedEnvironment(disk_), parameters, faults));
    driver_ = std::make_unique<StoreDriver>(disk_.engine(), *store_);
    return absl::OkStatus();
  }

  absl::Status Commit(DrivenStep& step) {
    model_.Attempt(step.expected);
    MOMENT_RETURN_IF_ERROR(driver_->Commit(step));
    model_.Acknowledge(step.expected.id);
    return absl::OkStatus();
  }

  absl::Status Drop(uint64_t sequence) {
    model_.Arrive(sequence);
    return store_->Drop(sequence);
  }

  absl::StatusOr<DrivenStep> Refresh(uint64_t sequence) {
    MOMENT_ASSIGN_OR_RETURN(DrivenStep step, driver_->BeginRefresh(sequence));
    model_.TakeId(step.expected.id);
    MOMENT_RETURN_IF_ERROR(driver_->WriteAll(step));
    MOMENT_RETURN_IF_ERROR(Commit(step));
    return step;
  }

  // Steps behind `step`, overlapped; ends with the commit of the last one.
  absl::Status Steps(DrivenStep& step, uint64_t count, uint64_t commit_every) {
    const size_t buckets = step.state.images.size();
    bool committed = true;
    for (uint64_t i = 1; i <= count; ++i) {
      MOMENT_RETURN_IF_ERROR(Drop(step.state.sequence + 1));
      MOMENT_ASSIGN_OR_RETURN(DrivenStep next,
                              driver_->BeginStep(step, commit_every, Rewritten(i, buckets)));
      model_.TakeId(next.expected.id);
      MOMENT_RETURN_IF_ERROR(driver_->WriteBuckets(next, 0, buckets / 2));
      if (!committed && step.state.due) {
        MOMENT_RETURN_IF_ERROR(Commit(step));
      }
      MOMENT_RETURN_IF_ERROR(driver_->WriteBuckets(next, buckets / 2, buckets));
      step = std::move(next);
      committed = false;
    }
    return committed ? absl::OkStatus() : Commit(step);
  }

  absl::Status Rollback(uint64_t sequence) {
    const std::vector<v1::CommitInfo> live = store_->live();
    for (const v1::CommitInfo& commit : live) {
      if (commit.sequence() == sequence) {
        ExpectedCommit expected = *model_.Find(commit.id());
        expected.id = model_.NextId();
        expected.due = true;
        model_.Attempt(expected);
      }
    }
    MOMENT_ASSIGN_OR_RETURN(const auto state, store_->Rollback(sequence));
    model_.Acknowledge(state->id);
    return absl::OkStatus();
  }

  absl::Status MarkDue() {
    ExpectedCommit expected = *model_.Find(store_->newest()->id);
    if (expected.due) {
      return store_->MarkDue();
    }
    expected.id = model_.NextId();
    expected.due = true;
    model_.Attempt(expected);
    MOMENT_RETURN_IF_ERROR(store_->MarkDue());
    model_.Acknowledge(expected.id);
    return absl::OkStatus();
  }

  absl::Status Pin(const std::string& id) {
    PinParameters parameters;
    parameters.id = id;
    MOMENT_ASSIGN_OR_RETURN(std::shared_ptr<const PinnedCommit> pin, store_->Pin(parameters));
    model_.AcknowledgePin(std::move(pin), *store_);
    return absl::OkStatus();
  }

  absl::Status Unpin(const std::string& id) {
    model_.DropPin(id);
    MOMENT_RETURN_IF_ERROR(store_->Unpin(id));
    return store_->Sweep();
  }

  // While the store is open.
  absl::Status CheckPins() {
    const std::string problem = disk_.power_is_off() ? "" : model_.CheckPins(disk_);
    return problem.empty() ? absl::OkStatus() : absl::InternalError(problem);
  }

  // A step, or a change of the same sequence, behind the newest commit.
  absl::StatusOr<DrivenStep> Change(uint64_t sequence, bool due, std::vector<bool> rewritten) {
    const std::shared_ptr<const State> base = store_->newest();
    MOMENT_ASSIGN_OR_RETURN(DrivenStep step,
                            driver_->BeginStepBehind(*base, *model_.Find(base->id), sequence, due,
                                                     std::move(rewritten)));
    model_.TakeId(step.expected.id);
    MOMENT_RETURN_IF_ERROR(driver_->WriteAll(step));
    MOMENT_RETURN_IF_ERROR(Commit(step));
    return step;
  }

  Store& store() { return *store_; }
  StoreDriver& driver() { return *driver_; }
  CrashModel& model() { return model_; }

 private:
  // The fourth step is a skip, the fifth leaves out the first bucket.
  static std::vector<bool> Rewritten(uint64_t i, size_t buckets) {
    std::vector<bool> rewritten(buckets, i != 4);
    if (i == 5 && buckets > 0) {
      rewritten[0] = false;
    }
    return rewritten;
  }

  io::SimulatedDisk& disk_;
  CrashModel& model_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<StoreDriver> driver_;
};

absl::Status PrepareOpen(io::SimulatedDisk& disk, CrashModel& model) {
  return Watched(disk, model).Open(SmallStore(), {});
}

absl::Status PrepareSteps(io::SimulatedDisk& disk, CrashModel& model) {
  Watched watched(disk, model);
  MOMENT_RETURN_IF_ERROR(watched.Open(SmallStore(), {}));
  MOMENT_ASSIGN_OR_RETURN(DrivenStep step, watched.Refresh(0));
  return watched.Steps(step, 4, 1);
}

OpenParameters LargerStore() {
  OpenParameters parameters = SmallStore();
  parameters.members.push_back(MakeMember("opt1"));
  parameters.tensors.push_back(MakeTensor("weight2", 0, {40}));
  parameters.tensors.push_back(MakeTensor("deep", 2, {10, 10}));
  parameters.blob_limit_bytes = 40'000;
  return parameters;
}

// The Refresh of the tensors that the newest commit does not name.
absl::StatusOr<DrivenStep> BeginAdded(Watched& watched) {
  const std::shared_ptr<const State> base = watched.store().newest();
  const std::shared_ptr<const Layout> layout = watched.store().layout();
  ExpectedCommit expected = *watched.model().Find(base->id);
  std::vector<bool> rewritten(layout->buckets().size(), true);
  std::fill_n(rewritten.begin(), base->images.size(), false);
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Mutation> mutation,
                          watched.store().Begin(base.get(), rewritten, rewritten));
  DrivenStep step;
  step.state = *base;
  step.state.id = mutation->id();
  step.state.layout = layout;
  step.state.images = mutation->images();
  step.state.t.resize(static_cast<size_t>(layout->proto().tensors_size()), 0);
  expected.id = mutation->id();
  expected.t = step.state.t;
  for (size_t bucket = base->images.size(); bucket < rewritten.size(); ++bucket) {
    expected.seeds.push_back(mutation->id() * 1000 + bucket);
    expected.written_by.push_back(mutation->id());
    expected.moments_zero.push_back(true);
  }
  step.expected = std::move(expected);
  step.mutation = std::move(mutation);
  watched.model().TakeId(step.expected.id);
  return step;
}

absl::StatusOr<DrivenStep> RefreshAdded(Watched& watched) {
  MOMENT_ASSIGN_OR_RETURN(DrivenStep step, BeginAdded(watched));
  MOMENT_RETURN_IF_ERROR(watched.driver().WriteAll(step));
  MOMENT_RETURN_IF_ERROR(watched.Commit(step));
  return step;
}

absl::Status RunSuperset(io::SimulatedDisk& disk, CrashModel& model, const StoreFaults& faults) {
  Watched watched(disk, model);
  MOMENT_RETURN_IF_ERROR(watched.Open(LargerStore(), faults));
  MOMENT_ASSIGN_OR_RETURN(DrivenStep step, RefreshAdded(watched));
  return watched.Steps(step, 1, 1);
}

absl::Status RunPins(io::SimulatedDisk& disk, CrashModel& model, const StoreFaults& faults) {
  Watched watched(disk, model);
  MOMENT_RETURN_IF_ERROR(watched.Open(SmallStore(), faults));
  MOMENT_RETURN_IF_ERROR(watched.Pin("first"));
  MOMENT_RETURN_IF_ERROR(watched.Drop(5));
  MOMENT_ASSIGN_OR_RETURN(DrivenStep step, watched.Change(5, true, {false, true, true}));
  MOMENT_RETURN_IF_ERROR(watched.Pin("second"));
  MOMENT_RETURN_IF_ERROR(watched.Pin("shared"));
  MOMENT_RETURN_IF_ERROR(watched.Steps(step, 3, 1));
  MOMENT_RETURN_IF_ERROR(watched.CheckPins());
  MOMENT_RETURN_IF_ERROR(watched.Unpin("first"));
  MOMENT_RETURN_IF_ERROR(watched.Unpin("second"));
  // Its files are named by records still, without a second link.
  MOMENT_RETURN_IF_ERROR(watched.Pin("third"));
  MOMENT_RETURN_IF_ERROR(watched.Unpin("third"));
  MOMENT_RETURN_IF_ERROR(watched.Steps(step, 2, 1));
  MOMENT_RETURN_IF_ERROR(watched.Unpin("shared"));
  return watched.CheckPins();
}

absl::Status RunRollbacks(io::SimulatedDisk& disk, CrashModel& model, const StoreFaults& faults) {
  Watched watched(disk, model);
  MOMENT_RETURN_IF_ERROR(watched.Open(SmallStore(), faults));
  MOMENT_RETURN_IF_ERROR(watched.Rollback(3));
  MOMENT_RETURN_IF_ERROR(watched.Change(3, true, {true, false, true}).status());
  MOMENT_RETURN_IF_ERROR(watched.Drop(4));
  MOMENT_ASSIGN_OR_RETURN(DrivenStep step, watched.Change(4, true, {}));
  MOMENT_RETURN_IF_ERROR(watched.Steps(step, 2, 1));
  MOMENT_RETURN_IF_ERROR(watched.Rollback(5));
  MOMENT_RETURN_IF_ERROR(watched.Drop(6));
  MOMENT_RETURN_IF_ERROR(watched.Change(6, false, {}).status());
  return watched.MarkDue();
}

}  // namespace

CrashScenario FirstOpen() {
  return {.name = "first open",
          .run = [](io::SimulatedDisk& disk, CrashModel& model, const StoreFaults& faults) {
            return Watched(disk, model).Open(SmallStore(), faults);
          }};
}

CrashScenario OverlappedSteps(uint64_t commit_every, uint64_t count) {
  return {.name = absl::StrCat("steps, commit_every ", commit_every),
          .prepare = PrepareOpen,
          .run = [=](io::SimulatedDisk& disk, CrashModel& model,
                     const StoreFaults& faults) -> absl::Status {
            Watched watched(disk, model);
            MOMENT_RETURN_IF_ERROR(watched.Open(SmallStore(), faults));
            MOMENT_ASSIGN_OR_RETURN(DrivenStep step, watched.Refresh(0));
            return watched.Steps(step, count, commit_every);
          }};
}

CrashScenario Rollbacks() {
  return {.name = "rollbacks", .prepare = PrepareSteps, .run = RunRollbacks};
}

CrashScenario Superset() {
  return {.name = "superset", .prepare = PrepareSteps, .run = RunSuperset, .reopen = LargerStore()};
}

CrashScenario Pins() {
  return {.name = "pins", .prepare = PrepareSteps, .run = RunPins, .steps_more = 4};
}

CrashScenario StartOver() {
  return {.name = "start over",
          .prepare = PrepareSteps,
          .run = [](io::SimulatedDisk& disk, CrashModel& model,
                    const StoreFaults& faults) -> absl::Status {
            Watched watched(disk, model);
            MOMENT_RETURN_IF_ERROR(watched.Open(SmallStore(v1::RESUME_NEVER), faults));
            MOMENT_ASSIGN_OR_RETURN(DrivenStep step, watched.Refresh(0));
            return watched.Steps(step, 2, 1);
          }};
}

namespace {

// One search under way.
class Searcher {
 public:
  Searcher(const CrashScenario& scenario, const CrashSearch& search)
      : scenario_(scenario), search_(search) {}

  CrashResult Run() {
    io::SimulatedDisk disk(search_.disk);
    CrashModel model;
    if (scenario_.prepare && !scenario_.prepare(disk, model).ok()) {
      result_.problem = "the preparation failed";
      return result_;
    }
    const std::unique_ptr<io::SimulatedDisk> whole = disk.AfterCrash(1);
    CrashModel whole_model = model;
    if (const absl::Status status = scenario_.run(*whole, whole_model, search_.faults);
        !status.ok()) {
      result_.problem = absl::StrCat("without a cut: ", status.message());
      return result_;
    }
    for (uint64_t cut = 1; cut <= whole->operations() + 1 && result_.problem.empty(); ++cut) {
      search_.kill_first ? Kill(disk, model, cut) : Cut(disk, model, cut);
    }
    return result_;
  }

 private:
  void Kill(const io::SimulatedDisk& prepared, const CrashModel& prepared_model, uint64_t cut) {
    const std::unique_ptr<io::SimulatedDisk> disk = prepared.AfterCrash(1);
    CrashModel model = prepared_model;
    disk->CutPowerBefore(cut);
    scenario_.run(*disk, model, search_.faults).IgnoreError();
    ++result_.cuts;
    disk->RestorePower();
    const absl::Status status = GoOnAfterKill(*disk, model, cut % 2 == 0);
    result_.problem = std::string(status.message());
    for (uint64_t choice = 0; choice < 2 + search_.drawn_choices; ++choice) {
      const uint64_t drawn = choice < 2 ? choice : choice + cut * 1000;
      if (result_.problem.empty()) {
        result_.problem = OpenAndCheck(*disk->AfterCrash(drawn), model);
      }
    }
    if (!result_.problem.empty()) {
      result_.problem =
          absl::StrCat(scenario_.name, ", killed before operation ", cut, ": ", result_.problem);
    }
  }

  // What the new process shows is promised from there on.
  absl::Status GoOnAfterKill(io::SimulatedDisk& disk, CrashModel& model, bool step) {
    Watched watched(disk, model);
    MOMENT_RETURN_IF_ERROR(watched.Open(scenario_.reopen, {}));
    if (std::string problem = model.Check(disk, watched.store()); !problem.empty()) {
      return absl::InternalError(problem);
    }
    model.Settle(watched.store());
    return step ? GoOn(watched) : absl::OkStatus();
  }

  void Cut(const io::SimulatedDisk& prepared, const CrashModel& prepared_model, uint64_t cut) {
    const std::unique_ptr<io::SimulatedDisk> disk = prepared.AfterCrash(1);
    CrashModel model = prepared_model;
    disk->CutPowerBefore(cut);
    scenario_.run(*disk, model, search_.faults).IgnoreError();
    ++result_.cuts;
    for (uint64_t choice = 0; choice < 2 + search_.drawn_choices; ++choice) {
      // Not the same draws at every cut.
      const uint64_t drawn = choice < 2 ? choice : choice + cut * 1000;
      const std::string problem = Reopen(*disk, model, drawn);
      if (!problem.empty()) {
        result_.problem = absl::StrCat(scenario_.name, ", power cut before operation ", cut,
                                       ", crash state ", drawn, ": ", problem);
        return;
      }
    }
  }

  std::string Reopen(const io::SimulatedDisk& crashed, const CrashModel& model, uint64_t choice) {
    const std::unique_ptr<io::SimulatedDisk> disk = crashed.AfterCrash(choice);
    if (std::string problem = model.CheckPins(*disk); !problem.empty()) {
      return problem;
    }
    if (search_.recovery_stride != 0 && ++crash_states_ % search_.recovery_stride == 0) {
      if (std::string problem = CutReopening(*disk, model); !problem.empty()) {
        return problem;
      }
    }
    return OpenAndCheck(*disk, model);
  }

  // Cuts the power between every two operations of the reopening, too.
  std::string CutReopening(const io::SimulatedDisk& before, const CrashModel& model) {
    const std::unique_ptr<io::SimulatedDisk> whole = before.AfterCrash(1);
    Watched(*whole, AnyModel()).Open(scenario_.reopen, {}).IgnoreError();
    for (uint64_t cut = 1; cut <= whole->operations(); ++cut) {
      const std::unique_ptr<io::SimulatedDisk> disk = before.AfterCrash(1);
      disk->CutPowerBefore(cut);
      Watched(*disk, AnyModel()).Open(scenario_.reopen, {}).IgnoreError();
      for (const uint64_t choice : {uint64_t{0}, uint64_t{1}, 2 + cut}) {
        const std::unique_ptr<io::SimulatedDisk> again = disk->AfterCrash(choice);
        if (std::string problem = OpenAndCheck(*again, model); !problem.empty()) {
          return absl::StrCat("reopening cut before its operation ", cut, ", crash state ", choice,
                              ": ", problem);
        }
      }
    }
    return "";
  }

  CrashModel& AnyModel() { return scratch_ = CrashModel(); }

  std::string OpenAndCheck(io::SimulatedDisk& disk, CrashModel model) {
    ++result_.reopenings;
    {
      Watched watched(disk, model);
      if (const absl::Status status = watched.Open(scenario_.reopen, {}); !status.ok()) {
        return absl::StrCat("it does not open: ", status.message());
      }
      if (std::string problem = model.Check(disk, watched.store()); !problem.empty()) {
        return problem;
      }
      if (result_.reopenings % 2 == 0) {
        return "";
      }
      model.Settle(watched.store());
      for (uint64_t i = 0; i < scenario_.steps_more; ++i) {
        if (const absl::Status status = GoOn(watched); !status.ok()) {
          return absl::StrCat("it does not go on: ", status.message());
        }
      }
    }
    Watched again(disk, model);
    if (const absl::Status status = again.Open(scenario_.reopen, {}); !status.ok()) {
      return absl::StrCat("it does not open after a step more: ", status.message());
    }
    const std::string problem = model.Check(disk, again.store());
    return problem.empty() ? "" : absl::StrCat("after a step more: ", problem);
  }

  static absl::Status GoOn(Watched& watched) {
    const std::shared_ptr<const State> newest = watched.store().newest();
    if (newest == nullptr) {
      return watched.Refresh(0).status();
    }
    if (!watched.store().added_tensors().empty()) {
      return RefreshAdded(watched).status();
    }
    MOMENT_RETURN_IF_ERROR(watched.Drop(newest->sequence + 1));
    return watched.Change(newest->sequence + 1, true, {}).status();
  }

  const CrashScenario& scenario_;
  const CrashSearch& search_;
  CrashResult result_;
  CrashModel scratch_;
  uint64_t crash_states_ = 0;
};

}  // namespace

CrashResult Search(const CrashScenario& scenario, const CrashSearch& search) {
  return Searcher(scenario, search).Run();
}

}  // namespace moment::store
