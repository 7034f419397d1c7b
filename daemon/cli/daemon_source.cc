#include "daemon/cli/daemon_source.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::cli {
namespace {

namespace fs = std::filesystem;

bool SamePath(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || (fs::equivalent(a, b, error) && !error);
}

bool IsBelow(const std::string& path, const std::string& state_directory) {
  std::error_code error;
  const fs::path relative = fs::relative(path, state_directory, error);
  return !error && !relative.empty() && *relative.begin() != "..";
}

// The newest commit that names this file tells what is in it.
void AddImage(const v1::DescribeResponse& store, store::BucketFileView& view) {
  for (const v1::CommitRecord& commit : store.commits()) {
    if (view.bucket >= static_cast<uint32_t>(commit.buckets_size())) {
      continue;
    }
    const v1::BucketImage& image = commit.buckets(static_cast<int>(view.bucket));
    if (image.file() == view.file) {
      view.has_checksums = true;
      view.written_by = image.written_by();
      view.checksums_digest = image.checksums_digest();
      return;
    }
  }
}

store::BucketFileView ViewOf(const v1::BucketFile& file, const v1::DescribeResponse& store) {
  store::BucketFileView view;
  view.path = file.path();
  view.size_bytes = file.size_bytes();
  view.bucket = file.bucket();
  view.file = file.file();
  view.store_uuid = store.store().store_uuid();
  const v1::Layout& layout = store.layout();
  if (file.bucket() < static_cast<uint32_t>(layout.buckets_size())) {
    const v1::Bucket& bucket = layout.buckets(static_cast<int>(file.bucket()));
    view.number = bucket.number();
    if (bucket.member() < static_cast<uint32_t>(layout.members_size())) {
      view.member = layout.members(static_cast<int>(bucket.member())).name();
    }
  }
  AddImage(store, view);
  return view;
}

}  // namespace

DaemonSource::DaemonSource(std::unique_ptr<AdminClient> client, std::string state_directory)
    : client_(std::move(client)), state_directory_(std::move(state_directory)) {}

absl::StatusOr<v1::ListResponse> DaemonSource::List() {
  MOMENT_ASSIGN_OR_RETURN(v1::ListResponse list, client_->List());
  if (state_directory_.empty()) {
    return list;
  }
  v1::ListResponse ours;
  for (v1::StoreSummary& store : *list.mutable_stores()) {
    if (IsBelow(store.directory(), state_directory_)) {
      *ours.add_stores() = std::move(store);
    }
  }
  return ours;
}

absl::StatusOr<v1::DescribeResponse> DaemonSource::Describe(const StoreReference& store) {
  MOMENT_ASSIGN_OR_RETURN(const v1::StoreName name, NameOf(store));
  return client_->Describe(name);
}

absl::Status DaemonSource::Verify(const StoreReference& store, Cancellation& cancellation,
                                  const OnVerify& on_response) {
  MOMENT_ASSIGN_OR_RETURN(const v1::StoreName name, NameOf(store));
  return client_->Verify(name, cancellation, on_response);
}

absl::StatusOr<v1::DropResponse> DaemonSource::DropPin(const StoreReference& store,
                                                       const std::string& pin) {
  MOMENT_ASSIGN_OR_RETURN(const v1::StoreName name, NameOf(store));
  return client_->DropPin(name, pin);
}

absl::StatusOr<store::BucketFileView> DaemonSource::BucketFile(const PathTarget& target) {
  MOMENT_ASSIGN_OR_RETURN(const v1::DescribeResponse store,
                          Describe({.name = {}, .directory = target.store_directory}));
  for (const v1::BucketFile& file : store.files()) {
    if (SamePath(file.path(), target.path)) {
      return ViewOf(file, store);
    }
  }
  return absl::NotFoundError(
      absl::StrCat("momentd at ", client_->socket_path(), " knows no bucket file ", target.path));
}

absl::StatusOr<store::CommitFileView> DaemonSource::CommitFile(const PathTarget& target) {
  return absl::FailedPreconditionError(
      absl::StrCat(target.path, " belongs to a daemon that may be writing it: inspect the store, ",
                   target.store_directory, ", or one of its commits with --commit"));
}

absl::StatusOr<v1::StoreName> DaemonSource::NameOf(const StoreReference& store) {
  if (!store.name.job().empty()) {
    return store.name;
  }
  MOMENT_ASSIGN_OR_RETURN(const v1::ListResponse list, client_->List());
  for (const v1::StoreSummary& summary : list.stores()) {
    if (SamePath(summary.directory(), store.directory)) {
      return summary.name();
    }
  }
  return absl::NotFoundError(
      absl::StrCat("momentd at ", client_->socket_path(), " lists no store in ", store.directory));
}

}  // namespace moment::cli
