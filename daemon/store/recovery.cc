#include "daemon/store/recovery.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/base/errors.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/file_access.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/names.h"

namespace moment::store {
namespace {

absl::Status BadRecord(const std::string& directory, const v1::CommitRecord& record,
                       absl::string_view what) {
  return absl::DataLossError(absl::StrCat(directory, " at offset 0: the record of id ", record.id(),
                                          " (sequence ", record.sequence(), ") ", what));
}

absl::StatusOr<std::shared_ptr<BucketImage>> LoadImage(io::IoEngine& engine,
                                                       const std::string& directory,
                                                       const Layout& layout,
                                                       const v1::CommitRecord& record,
                                                       uint32_t bucket, const FileTable& files) {
  const v1::BucketImage& named = record.buckets(static_cast<int>(bucket));
  const BucketGeometry& geometry = layout.buckets()[bucket];
  std::shared_ptr<io::File> file = files.Find(bucket, named.file());
  if (file == nullptr) {
    return absl::DataLossError(
        absl::StrCat(BucketFilePath(directory, layout.proto(), geometry, named.file()),
                     " at offset 0: the file that the commit of sequence ", record.sequence(),
                     " names is missing"));
  }
  const BucketHeader header =
      BuildHeader(layout.proto(), layout.proto().buckets(static_cast<int>(bucket)));
  MOMENT_RETURN_IF_ERROR(CheckBucketFile(engine, *file, header));
  const ChecksumTableKey key{.store_uuid = record.store_uuid(),
                             .bucket = bucket,
                             .file = named.file(),
                             .id = named.written_by()};
  MOMENT_ASSIGN_OR_RETURN(const ChecksumTable table,
                          ReadNamedTable(engine, *file, geometry, key, named.checksums_digest()));
  auto image =
      std::make_shared<BucketImage>(bucket, named.file(), named.written_by(), named.moments_zero(),
                                    false, std::move(file), geometry.checksum_count);
  for (uint64_t i = 0; i < geometry.checksum_count; ++i) {
    image->set_checksum(i, table.checksums[i]);
  }
  return image;
}

absl::Status ReadSteps(const std::string& directory, const v1::CommitRecord& record,
                       std::vector<uint64_t>& t) {
  for (const v1::TensorSteps& run : record.steps()) {
    if (run.first() > t.size() || run.count() > t.size() - run.first()) {
      return BadRecord(directory, record, "names tensors that its layout does not have");
    }
    std::fill_n(t.begin() + run.first(), run.count(), run.t());
  }
  return absl::OkStatus();
}

void WriteSteps(const std::vector<uint64_t>& t, v1::CommitRecord& record) {
  for (size_t i = 0; i < t.size(); ++i) {
    const int last = record.steps_size() - 1;
    if (last >= 0 && record.steps(last).t() == t[i]) {
      record.mutable_steps(last)->set_count(record.steps(last).count() + 1);
      continue;
    }
    v1::TensorSteps* run = record.add_steps();
    run->set_first(static_cast<uint32_t>(i));
    run->set_count(1);
    run->set_t(t[i]);
  }
}

}  // namespace

absl::StatusOr<v1::StoreFile> LoadStoreFile(io::FileSystem& files, io::IoEngine& engine,
                                            const std::string& directory) {
  const std::string path = Join(directory, kStoreFileName);
  MOMENT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(files, engine, path));
  return ReadStoreText(path, text);
}

absl::StatusOr<std::shared_ptr<const Layout>> LoadLayout(io::FileSystem& files,
                                                         io::IoEngine& engine,
                                                         const std::string& directory,
                                                         uint64_t digest) {
  const std::string path = Join(directory, LayoutFileName(digest));
  const absl::StatusOr<std::string> text = ReadTextFile(files, engine, path);
  if (absl::IsNotFound(text.status())) {
    return absl::DataLossError(absl::StrCat(path, " at offset 0: the layout file is missing"));
  }
  MOMENT_RETURN_IF_ERROR(text.status());
  MOMENT_ASSIGN_OR_RETURN(v1::Layout proto, ReadLayoutText(path, *text, digest));
  absl::StatusOr<std::shared_ptr<const Layout>> layout = Layout::Create(std::move(proto));
  if (!layout.ok()) {
    return absl::DataLossError(absl::StrCat(path, " at offset 0: ", layout.status().message()));
  }
  return layout;
}

absl::StatusOr<std::shared_ptr<State>> LoadState(io::IoEngine& engine, const std::string& directory,
                                                 const std::shared_ptr<const Layout>& layout,
                                                 const v1::CommitRecord& record,
                                                 const FileTable& files) {
  if (static_cast<size_t>(record.buckets_size()) != layout->buckets().size()) {
    return BadRecord(directory, record, "names another number of buckets than its layout has");
  }
  auto state = std::make_shared<State>();
  state->id = record.id();
  state->sequence = record.sequence();
  state->due = record.due();
  state->step_id = record.step_id();
  state->layout = layout;
  state->groups.assign(record.groups().begin(), record.groups().end());
  state->blob = record.blob();
  state->t.assign(static_cast<size_t>(layout->proto().tensors_size()), 0);
  MOMENT_RETURN_IF_ERROR(ReadSteps(directory, record, state->t));
  for (uint32_t bucket = 0; bucket < layout->buckets().size(); ++bucket) {
    MOMENT_ASSIGN_OR_RETURN(std::shared_ptr<BucketImage> image,
                            LoadImage(engine, directory, *layout, record, bucket, files));
    state->images.push_back(std::move(image));
  }
  return state;
}

v1::CommitRecord RecordOf(const State& state, const std::vector<uint64_t>& digests,
                          const std::string& store_uuid, uint64_t commit_every) {
  v1::CommitRecord record;
  record.set_id(state.id);
  record.set_sequence(state.sequence);
  record.set_due(state.due);
  record.set_step_id(state.step_id);
  record.set_layout_digest(state.layout->digest());
  record.set_commit_every(commit_every);
  record.set_store_uuid(store_uuid);
  record.set_unix_time_ns(absl::GetCurrentTimeNanos());
  record.set_blob(state.blob);
  record.mutable_groups()->Add(state.groups.begin(), state.groups.end());
  WriteSteps(state.t, record);
  for (size_t i = 0; i < state.images.size(); ++i) {
    v1::BucketImage* named = record.add_buckets();
    named->set_file(state.images[i]->file_number());
    named->set_checksums_digest(digests[i]);
    named->set_written_by(state.images[i]->written_by());
    named->set_moments_zero(state.images[i]->moments_zero());
  }
  return record;
}

}  // namespace moment::store
