#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/cli/cancellation.h"
#include "daemon/cli/command.h"
#include "daemon/store/inspect.h"
#include "moment/v1/admin.pb.h"

namespace moment::cli {

// A store by its name or by its directory; one of them suffices.
struct StoreReference {
  v1::StoreName name;     // no job: not said
  std::string directory;  // "": not said
};

using OnVerify = std::function<void(const v1::VerifyResponse&)>;

// Where stores are looked at: a daemon, or files that hold still. Used by one thread.
class Source {
 public:
  virtual ~Source() = default;

  // "/run/momentd/admin.sock", or the directory.
  virtual const std::string& place() const = 0;
  virtual bool online() const = 0;

  virtual absl::StatusOr<v1::ListResponse> List() = 0;
  virtual absl::StatusOr<v1::DescribeResponse> Describe(const StoreReference& store) = 0;
  // Progress by `on_response`, damage too; not OK if the store cannot be verified at all.
  // CANCELLED after `cancellation`.
  virtual absl::Status Verify(const StoreReference& store, Cancellation& cancellation,
                              const OnVerify& on_response) = 0;
  // `pin`: an id, or the beginning of one. FAILED_PRECONDITION for files: only a daemon changes
  // any.
  virtual absl::StatusOr<v1::DropResponse> DropPin(const StoreReference& store,
                                                   const std::string& pin) = 0;
  // A daemon tells of a bucket file what its store knows (header_bytes is 0: nothing was read), and
  // of a commit file nothing: FAILED_PRECONDITION, since it may be writing it.
  virtual absl::StatusOr<store::BucketFileView> BucketFile(const PathTarget& target) = 0;
  virtual absl::StatusOr<store::CommitFileView> CommitFile(const PathTarget& target) = 0;
};

// The daemon at the socket that the options name.
absl::StatusOr<std::unique_ptr<Source>> OpenDaemon(const CommonOptions& options);

// The files below `state_directory`, under its lock, shared. Where a daemon holds the lock: that
// daemon, and a note says so. A lock whose holder is gone comes free when the holder's last writes
// have landed: that is waited for, as long as the timeout. UNAVAILABLE if neither can be had.
absl::StatusOr<std::unique_ptr<Source>> OpenStateDirectory(const std::string& state_directory,
                                                           const CommonOptions& options,
                                                           Context& context);

// What ClassifyPath found: its state directory, or, where it has none, the files as they are.
absl::StatusOr<std::unique_ptr<Source>> OpenPath(const PathTarget& target,
                                                 const CommonOptions& options, Context& context);

// By name: `state_directory` if it is said, else the daemon.
absl::StatusOr<std::unique_ptr<Source>> OpenByName(const std::string& state_directory,
                                                   const CommonOptions& options, Context& context);

}  // namespace moment::cli
