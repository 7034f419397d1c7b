#include "tests/store/crash_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/offline.h"
#include "daemon/store/pin_files.h"
#include "daemon/store/recovery.h"
#include "daemon/store/reservation.h"

namespace moment::store {
namespace {

std::string CheckRecord(io::SimulatedDisk& disk, const OfflineStore& offline,
                        const std::string& directory, const v1::CommitRecord& record,
                        const ExpectedCommit& expected) {
  const auto layout = LoadLayout(disk.files(), disk.engine(), directory, record.layout_digest());
  if (!layout.ok()) {
    return std::string(layout.status().message());
  }
  Reservation found(SimulatedEnvironment(disk), directory, *layout);
  if (const absl::Status status = found.Scan(); !status.ok()) {
    return std::string(status.message());
  }
  const auto state = LoadState(disk.engine(), directory, *layout, record, *found.files());
  if (!state.ok()) {
    return std::string(state.status().message());
  }
  return offline.store.store_uuid() == record.store_uuid()
             ? CompareState(disk.engine(), **state, expected)
             : "another store's record";
}

// A bucket's file under this path: empty if it is not there, or holds what it was pinned with.
std::string ComparePinned(io::SimulatedDisk& disk, const std::string& path,
                          const BucketGeometry& geometry, const ExpectedCommit& commit,
                          size_t bucket) {
  const auto file = disk.files().Open(path, {.mode = io::OpenMode::kRead});
  return absl::IsNotFound(file.status())
             ? ""
             : CompareFile(disk.engine(), **file, geometry, commit.seeds[bucket],
                           commit.moments_zero[bucket]);
}

}  // namespace

void CrashModel::Attempt(const ExpectedCommit& commit) {
  attempted_[commit.id] = commit;
  last_id_ = std::max(last_id_, commit.id);
}

void CrashModel::Acknowledge(uint64_t id) {
  const ExpectedCommit& commit = attempted_.at(id);
  acknowledged_ = id;
  promised_.push_back({commit.id, commit.sequence, commit.due});
  const std::vector<bool> live = LiveRecords(promised_);
  std::vector<RecordFacts> kept;
  for (size_t i = 0; i < promised_.size(); ++i) {
    if (live[i]) {
      kept.push_back(promised_[i]);
    }
  }
  promised_ = std::move(kept);
}

void CrashModel::Arrive(uint64_t sequence) {
  const auto kept = KeptAtArrival(promised_, sequence);
  if (!kept.ok()) {
    return;
  }
  std::vector<RecordFacts> left;
  for (size_t i = 0; i < promised_.size(); ++i) {
    if ((*kept)[i]) {
      left.push_back(promised_[i]);
    }
  }
  promised_ = std::move(left);
}

const ExpectedCommit* CrashModel::Find(uint64_t id) const {
  const auto found = attempted_.find(id);
  return found == attempted_.end() ? nullptr : &found->second;
}

std::string CrashModel::Check(io::SimulatedDisk& disk, Store& store) const {
  for (const std::string& problem :
       {CheckNewest(disk, store), CheckPromised(store), CheckLive(disk, store),
        CheckNothingPinned(disk, store), CheckPinnedFiles(disk)}) {
    if (!problem.empty()) {
      return problem;
    }
  }
  return "";
}

std::string CrashModel::CheckNewest(io::SimulatedDisk& disk, const Store& store) const {
  const std::shared_ptr<const State> newest = store.newest();
  if (newest == nullptr) {
    return acknowledged_ == 0 ? ""
                              : absl::StrCat("empty, but id ", acknowledged_, " was acknowledged");
  }
  if (newest->id < acknowledged_) {
    return absl::StrCat("at id ", newest->id, ", but id ", acknowledged_, " was acknowledged");
  }
  const ExpectedCommit* expected = Find(newest->id);
  if (expected == nullptr) {
    return absl::StrCat("at id ", newest->id, ", which no one asked for");
  }
  return CompareState(disk.engine(), *newest, *expected);
}

std::string CrashModel::CheckPromised(const Store& store) const {
  const std::vector<v1::CommitInfo> live = store.live();
  for (const RecordFacts& promised : promised_) {
    const bool kept = std::any_of(live.begin(), live.end(), [&](const v1::CommitInfo& commit) {
      return commit.id() == promised.id ||
             (commit.id() > promised.id && commit.sequence() <= promised.sequence);
    });
    if (!kept) {
      return absl::StrCat("the commit of sequence ", promised.sequence, " (id ", promised.id,
                          ") is gone");
    }
  }
  return "";
}

std::string CrashModel::CheckLive(io::SimulatedDisk& disk, const Store& store) const {
  const auto offline = ReadOffline(disk.files(), disk.engine(), store.directory());
  if (!offline.ok()) {
    return std::string(offline.status().message());
  }
  if (offline->commits.size() != store.live().size()) {
    return absl::StrCat(store.live().size(), " live commits in memory, ", offline->commits.size(),
                        " on disk");
  }
  for (const v1::CommitRecord& record : offline->commits) {
    const ExpectedCommit* expected = Find(record.id());
    const std::string problem =
        expected == nullptr ? "no one asked for it"
                            : CheckRecord(disk, *offline, store.directory(), record, *expected);
    if (!problem.empty()) {
      return absl::StrCat("live commit of id ", record.id(), ": ", problem);
    }
  }
  return "";
}

void CrashModel::AcknowledgePin(std::shared_ptr<const PinnedCommit> pin, const Store& store) {
  ExpectedPin& expected = pins_[pin->id];
  expected.commit = attempted_.at(pin->commit.id());
  expected.directory = store.directory();
  expected.owed = true;
  expected.pin = std::move(pin);
}

std::string CrashModel::CheckPins(io::SimulatedDisk& disk) const {
  for (const auto& [id, expected] : pins_) {
    if (!expected.owed) {
      continue;
    }
    const auto manifest = LoadPin(disk.files(), disk.engine(), expected.directory, id);
    if (!manifest.ok() || manifest->commit().id() != expected.commit.id) {
      return absl::StrCat("pin ", id, ": ", manifest.status().message());
    }
    const Layout& layout = *expected.pin->layout;
    for (size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
      const std::string path =
          PinnedFilePath(expected.directory, id, layout.proto(), layout.buckets()[bucket]);
      if (!disk.files().Stat(path).ok()) {
        return absl::StrCat(path, " is not there");
      }
      if (std::string problem =
              ComparePinned(disk, path, layout.buckets()[bucket], expected.commit, bucket);
          !problem.empty()) {
        return problem;
      }
    }
  }
  return CheckPinnedFiles(disk);
}

std::string CrashModel::CheckPinnedFiles(io::SimulatedDisk& disk) const {
  for (const auto& [id, expected] : pins_) {
    const Layout& layout = *expected.pin->layout;
    for (size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
      const BucketGeometry& geometry = layout.buckets()[bucket];
      const std::string path =
          BucketFilePath(expected.directory, layout.proto(), geometry, expected.pin->files[bucket]);
      if (std::string problem = ComparePinned(disk, path, geometry, expected.commit, bucket);
          !problem.empty()) {
        return absl::StrCat("pinned by ", id, ": ", problem);
      }
    }
  }
  return "";
}

std::string CrashModel::CheckNothingPinned(io::SimulatedDisk& disk, const Store& store) const {
  const auto ids = PinIds(disk.files(), store.directory());
  if (!ids.ok() || !ids->empty() || !store.pins().empty()) {
    return "pins stay after an Open";
  }
  return store.wants_sweep() ? "files that nothing needs stay after an Open" : "";
}

void CrashModel::Settle(Store& store) {
  for (auto& [id, expected] : pins_) {
    expected.owed = false;
  }
  const std::vector<v1::CommitInfo> live = store.live();
  acknowledged_ = live.empty() ? 0 : live.front().id();
  last_id_ = acknowledged_;
  promised_.clear();
  for (const v1::CommitInfo& commit : live) {
    promised_.push_back({commit.id(), commit.sequence(), commit.due()});
  }
}

}  // namespace moment::store
