#pragma once

#include <memory>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/worker_pool.h"
#include "daemon/cli/source.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"

namespace moment::cli {

// Stores as files that nobody changes: the lock of their state directory is held (shared), or they
// have no owner.
class FileSource : public Source {
 public:
  // `directory`: a state directory, or with `lock` empty the directory of one store.
  static absl::StatusOr<std::unique_ptr<Source>> Create(std::string directory, base::UniqueFd lock);

  const std::string& place() const override { return directory_; }
  bool online() const override { return false; }
  absl::StatusOr<v1::ListResponse> List() override;
  absl::StatusOr<v1::DescribeResponse> Describe(const StoreReference& store) override;
  absl::Status Verify(const StoreReference& store, Cancellation& cancellation,
                      const OnVerify& on_response) override;
  absl::StatusOr<v1::DropResponse> DropPin(const StoreReference& store,
                                           const std::string& pin) override;
  absl::StatusOr<store::BucketFileView> BucketFile(const PathTarget& target) override;
  absl::StatusOr<store::CommitFileView> CommitFile(const PathTarget& target) override;

 private:
  FileSource(std::string directory, base::UniqueFd lock, std::unique_ptr<io::FileSystem> files,
             std::unique_ptr<io::IoEngine> engine);

  std::string DirectoryOf(const StoreReference& store) const;

  std::string directory_;
  base::UniqueFd lock_;
  std::unique_ptr<io::FileSystem> files_;
  std::unique_ptr<io::IoEngine> engine_;
  base::WorkerPool workers_;
};

}  // namespace moment::cli
