#pragma once

#include <memory>
#include <string>

#include "daemon/cli/admin_client.h"
#include "daemon/cli/source.h"

namespace moment::cli {

// Stores through the daemon that owns them: all of its, or those of one of its state directories.
class DaemonSource : public Source {
 public:
  // `state_directory`: "" for all.
  explicit DaemonSource(std::unique_ptr<AdminClient> client, std::string state_directory = "");

  const std::string& place() const override { return client_->socket_path(); }
  bool online() const override { return true; }
  absl::StatusOr<v1::ListResponse> List() override;
  absl::StatusOr<v1::DescribeResponse> Describe(const StoreReference& store) override;
  absl::Status Verify(const StoreReference& store, Cancellation& cancellation,
                      const OnVerify& on_response) override;
  absl::StatusOr<v1::DropResponse> DropPin(const StoreReference& store,
                                           const std::string& pin) override;
  absl::StatusOr<store::BucketFileView> BucketFile(const PathTarget& target) override;
  absl::StatusOr<store::CommitFileView> CommitFile(const PathTarget& target) override;

 private:
  // The daemon knows stores by name: a directory is looked up in its list.
  absl::StatusOr<v1::StoreName> NameOf(const StoreReference& store);

  std::unique_ptr<AdminClient> client_;
  std::string state_directory_;
};

}  // namespace moment::cli
