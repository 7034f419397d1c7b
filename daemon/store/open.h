#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/bucket_plan.h"
#include "daemon/store/commit_files.h"
#include "daemon/store/faults.h"
#include "daemon/store/reservation.h"
#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"

namespace moment::store {

// Store::Open, with the mistakes that a test plants.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const Environment& environment,
                                                 const OpenParameters& parameters,
                                                 const StoreFaults& faults);

// One Open. A store that never had a record is made anew, whatever is there; one with a record is
// checked, then completed. Nothing is written before the request is known to be acceptable.
class Opener {
 public:
  Opener(const Environment& environment, const OpenParameters& parameters,
         const StoreFaults& faults);

  absl::StatusOr<std::unique_ptr<Store>> Run();

 private:
  absl::Status CheckStoreFile(const v1::StoreFile& store) const;

  // A store without a record.
  absl::Status CheckLost();
  absl::StatusOr<std::unique_ptr<Store>> MakeNew();
  absl::Status MakeDirectories();
  void RemoveDirectories();
  absl::Status Fill();
  absl::Status Wipe();
  absl::Status DropPins();
  absl::Status WriteStoreFile();

  // A store with records.
  absl::StatusOr<std::unique_ptr<Store>> Recover();
  absl::Status CheckResume(const RecordSummary& newest) const;
  absl::Status PlanSuperset(const Layout& stored);
  absl::Status LoadNewest(const RecordSummary& newest, const std::shared_ptr<const Layout>& stored);
  absl::Status RepairRecords();
  absl::Status Complete(const Layout& stored);
  absl::Status AddLayoutFile(const Layout& stored);
  absl::Status RemoveOldLayouts();

  absl::Status WriteLayoutFile(const Layout& layout) const;
  StoreParts Parts();

  const Environment environment_;
  const OpenParameters parameters_;
  const StoreFaults faults_;
  const std::string directory_;
  LayoutRequest request_;
  std::string uuid_;
  std::vector<std::string> made_directories_;
  std::shared_ptr<const Layout> layout_;
  std::unique_ptr<CommitFiles> commit_files_;
  std::unique_ptr<Reservation> reservation_;
  std::shared_ptr<const State> newest_;
  std::vector<std::string> warnings_;
};

}  // namespace moment::store
