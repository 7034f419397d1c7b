#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/errors.h"
#include "daemon/store/commit_record.h"
#include "daemon/store/commit_rules.h"
#include "daemon/store/file_access.h"
#include "daemon/store/names.h"
#include "daemon/store/open.h"
#include "daemon/store/recovery.h"

// Opening a store that has a commit: the highest id decides; refuse what is damaged; then complete.
namespace moment::store {
namespace {

std::string AgeText(int64_t unix_time_ns) {
  const absl::Duration age = absl::Now() - absl::FromUnixNanos(unix_time_ns);
  return age < absl::Seconds(1) ? "less than a second"
                                : absl::FormatDuration(absl::Trunc(age, absl::Seconds(1)));
}

const RecordSummary& Newest(const std::vector<RecordSummary>& records) {
  return *std::max_element(records.begin(), records.end(),
                           [](const auto& a, const auto& b) { return a.facts.id < b.facts.id; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Opener::Recover() {
  const RecordSummary newest = Newest(commit_files_->Records());
  warnings_ = commit_files_->warnings();
  MOMENT_RETURN_IF_ERROR(CheckResume(newest));
  MOMENT_ASSIGN_OR_RETURN(
      const std::shared_ptr<const Layout> stored,
      LoadLayout(*environment_.files, *environment_.engine, directory_, newest.layout_digest));
  MOMENT_RETURN_IF_ERROR(PlanSuperset(*stored));
  reservation_ = std::make_unique<Reservation>(environment_, directory_, layout_);
  MOMENT_RETURN_IF_ERROR(reservation_->Scan());
  MOMENT_RETURN_IF_ERROR(LoadNewest(newest, stored));
  MOMENT_RETURN_IF_ERROR(RepairRecords());
  MOMENT_RETURN_IF_ERROR(DropPins());
  MOMENT_RETURN_IF_ERROR(base::WithContext(Complete(*stored), Describe(parameters_.name)));
  auto store = std::make_unique<StoreImpl>(Parts());
  if (parameters_.rollback_to.has_value()) {
    MOMENT_RETURN_IF_ERROR(store->Rollback(*parameters_.rollback_to).status());
  }
  return std::unique_ptr<Store>(std::move(store));
}

absl::Status Opener::CheckResume(const RecordSummary& newest) const {
  if (parameters_.resume != v1::RESUME_UNSPECIFIED) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(
      absl::StrCat(Describe(parameters_.name), " has state of sequence ", newest.facts.sequence,
                   ", committed ", AgeText(newest.unix_time_ns),
                   " ago; choose resume=auto or must to go on with it, never to start over"));
}

absl::Status Opener::PlanSuperset(const Layout& stored) {
  if (const std::string difference = FirstDifference(stored.proto(), request_);
      !difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(parameters_.name), " has another layout: ", difference,
                     "; open it as it is stored, or under another job or role"));
  }
  MOMENT_ASSIGN_OR_RETURN(layout_, Layout::Create(PlanLayout(&stored.proto(), request_)));
  return absl::OkStatus();
}

absl::Status Opener::LoadNewest(const RecordSummary& newest,
                                const std::shared_ptr<const Layout>& stored) {
  if (newest.commit_every != parameters_.commit_every) {
    warnings_.push_back(absl::StrCat(Describe(parameters_.name), ": commit_every was ",
                                     newest.commit_every, ", it is ", parameters_.commit_every,
                                     "; all ranks must have the same"));
  }
  if (parameters_.rollback_to.has_value()) {
    return absl::OkStatus();  // Rollback loads the commit it goes to
  }
  MOMENT_ASSIGN_OR_RETURN(const v1::CommitRecord record, commit_files_->Read(newest.facts.id));
  // With the superset's own object where nothing is added: users compare layouts by digest or
  // address.
  const std::shared_ptr<const Layout>& layout =
      stored->digest() == layout_->digest() ? layout_ : stored;
  absl::StatusOr<std::shared_ptr<State>> state =
      LoadState(*environment_.engine, directory_, layout, record, *reservation_->files());
  if (absl::IsDataLoss(state.status()) && parameters_.resume == v1::RESUME_NEVER) {
    warnings_.push_back(absl::StrCat(state.status().message(), "; the store starts over"));
    return absl::OkStatus();
  }
  MOMENT_RETURN_IF_ERROR(state.status());
  newest_ = *std::move(state);
  return absl::OkStatus();
}

absl::Status Opener::RepairRecords() {
  MOMENT_RETURN_IF_ERROR(commit_files_->Repair());
  MOMENT_RETURN_IF_ERROR(commit_files_->EraseDead());
  reservation_->files()->SetRecords(commit_files_->Records());
  return reservation_->CheckUnused(warnings_);
}

absl::Status Opener::Complete(const Layout& stored) {
  absl::Status status = AddLayoutFile(stored);
  if (status.ok()) {
    status = commit_files_->Grow(RecordRoom(layout_->proto(), parameters_.blob_limit_bytes));
  }
  if (status.ok()) {
    status = reservation_->Complete();
  }
  if (!status.ok() && layout_->digest() != stored.digest()) {
    environment_.files->Unlink(Join(directory_, LayoutFileName(layout_->digest()))).IgnoreError();
  }
  MOMENT_RETURN_IF_ERROR(status);
  MOMENT_RETURN_IF_ERROR(reservation_->RemoveSurplus());
  return RemoveOldLayouts();
}

// Before any record can name it.
absl::Status Opener::AddLayoutFile(const Layout& stored) {
  return layout_->digest() == stored.digest() ? absl::OkStatus() : WriteLayoutFile(*layout_);
}

// Those that neither a record nor this Open names.
absl::Status Opener::RemoveOldLayouts() {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          environment_.files->List(directory_));
  const std::vector<RecordSummary> records = commit_files_->Records();
  for (const std::string& name : names) {
    const std::optional<uint64_t> digest = ParseLayoutFileName(name);
    const bool named =
        !digest.has_value() || *digest == layout_->digest() ||
        std::any_of(records.begin(), records.end(),
                    [&](const RecordSummary& record) { return record.layout_digest == *digest; });
    if (!named) {
      MOMENT_RETURN_IF_ERROR(environment_.files->Unlink(Join(directory_, name)));
    }
  }
  return absl::OkStatus();
}

}  // namespace moment::store
