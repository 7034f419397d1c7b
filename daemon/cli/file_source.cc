#include "daemon/cli/file_source.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/inspect.h"
#include "daemon/store/names.h"

namespace moment::cli {
namespace {

// Reading is bound by the disk, and checksums by the cores that there are.
uint32_t WorkerCount() { return std::clamp<uint32_t>(std::thread::hardware_concurrency(), 2, 16); }

}  // namespace

FileSource::FileSource(std::string directory, base::UniqueFd lock,
                       std::unique_ptr<io::FileSystem> files, std::unique_ptr<io::IoEngine> engine)
    : directory_(std::move(directory)),
      lock_(std::move(lock)),
      files_(std::move(files)),
      engine_(std::move(engine)),
      workers_(static_cast<int>(WorkerCount())) {}

absl::StatusOr<std::unique_ptr<Source>> FileSource::Create(std::string directory,
                                                           base::UniqueFd lock) {
  MOMENT_ASSIGN_OR_RETURN(io::CreatedEngine created,
                          io::CreateEngine({.kind = io::EngineKind::kThreads,
                                            .depth = 2 * WorkerCount(),
                                            .threads = WorkerCount(),
                                            .held_fds = {}}));
  return std::unique_ptr<Source>(new FileSource(std::move(directory), std::move(lock),
                                                io::CreatePosixFileSystem(),
                                                std::move(created.engine)));
}

absl::StatusOr<v1::ListResponse> FileSource::List() {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<v1::StoreSummary> stores,
                          store::ListStores(*files_, *engine_, directory_));
  v1::ListResponse response;
  response.mutable_stores()->Assign(stores.begin(), stores.end());
  return response;
}

absl::StatusOr<v1::DescribeResponse> FileSource::Describe(const StoreReference& store) {
  return store::ReadStore(*files_, *engine_, DirectoryOf(store));
}

absl::Status FileSource::Verify(const StoreReference& store, Cancellation& cancellation,
                                const OnVerify& on_response) {
  v1::VerifyResponse response;
  store::VerifyOptions options;
  options.progress = [&](uint64_t bytes_done, uint64_t bytes_total) {
    response.set_bytes_done(bytes_done);
    response.set_bytes_total(bytes_total);
    on_response(response);
  };
  options.cancelled = [&] { return cancellation.cancelled(); };
  MOMENT_ASSIGN_OR_RETURN(
      const std::vector<v1::VerifyProblem> problems,
      store::VerifyStore(*files_, *engine_, workers_, DirectoryOf(store), options));
  response.mutable_problems()->Assign(problems.begin(), problems.end());
  response.set_done(true);
  on_response(response);
  return absl::OkStatus();
}

absl::StatusOr<v1::DropResponse> FileSource::DropPin(const StoreReference& store,
                                                     const std::string&) {
  return absl::FailedPreconditionError(
      absl::StrCat("no daemon holds ", DirectoryOf(store),
                   ", and momentctl changes nothing by itself: the next Open of the store drops "
                   "the pins it finds"));
}

absl::StatusOr<store::BucketFileView> FileSource::BucketFile(const PathTarget& target) {
  return store::DescribeBucketFile(*files_, *engine_, target.path);
}

absl::StatusOr<store::CommitFileView> FileSource::CommitFile(const PathTarget& target) {
  return store::DescribeCommitFile(*files_, *engine_, target.path);
}

std::string FileSource::DirectoryOf(const StoreReference& store) const {
  return store.directory.empty() ? store::StoreDirectory(directory_, store.name) : store.directory;
}

}  // namespace moment::cli
