#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/store/layout.h"
#include "moment/v1/disk.pb.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::store {

// The content of one bucket at one id: an open file and the checksums of its units. Immutable once
// a commit names it; while it is being written, its one writer sets checksums and no one else reads
// those of units that are not written. The file of an image that no commit names yet stays with it
// until the last reference is gone, so a later, still uncommitted state may refer to it; that of a
// committed one is free as soon as no record names it and no uncommitted Mutation takes it over:
// references to states that are dropped are not read through.
class BucketImage {
 public:
  // `lease` is destroyed with the image (the store's hold on the file; null elsewhere).
  BucketImage(uint32_t bucket, uint32_t file_number, uint64_t written_by, bool moments_zero,
              bool fresh, std::shared_ptr<io::File> file, uint64_t checksum_count,
              std::shared_ptr<void> lease = nullptr);

  uint32_t bucket() const { return bucket_; }
  uint32_t file_number() const { return file_number_; }
  uint64_t written_by() const { return written_by_; }
  bool moments_zero() const { return moments_zero_; }
  // Everything behind the header still reads as zero: the file was made by this process and not
  // written yet. Whoever writes an image with moments_zero() that is not fresh writes the zeros.
  bool fresh() const { return fresh_; }
  io::File& file() const { return *file_; }
  uint64_t checksum(uint64_t index) const { return checksums_[index]; }
  void set_checksum(uint64_t index, uint64_t value) { checksums_[index] = value; }
  const std::vector<uint64_t>& checksums() const { return checksums_; }

 private:
  uint32_t bucket_;
  uint32_t file_number_;
  uint64_t written_by_;
  bool moments_zero_;
  bool fresh_;
  std::shared_ptr<io::File> file_;
  std::vector<uint64_t> checksums_;
  std::shared_ptr<void> lease_;
};

using Images = std::vector<std::shared_ptr<BucketImage>>;  // by bucket index of the layout

// Everything a commit says, in memory: the state that a step starts from, or ends in.
struct State {
  uint64_t id = 0;
  uint64_t sequence = 0;
  bool due = false;
  std::string step_id;  // 16 bytes
  std::shared_ptr<const Layout> layout;
  Images images;
  std::vector<uint64_t> t;  // by tensor of the layout
  std::vector<v1::Group> groups;
  std::string blob;
};

// Files of a commit that are kept, and never written again, whatever is committed after it.
struct PinnedCommit {
  std::string id;
  v1::PinOwner owner;
  int64_t unix_time_ns = 0;  // when it was made
  v1::CommitInfo commit;
  std::shared_ptr<const Layout> layout;  // of the commit
  std::vector<uint64_t> t;               // by tensor of the layout
  std::vector<uint32_t> files;           // numbers, by bucket of the layout
  uint64_t size_bytes = 0;               // of the files
};

struct PinParameters {
  std::string id;  // 1 to 64 letters, digits, '-' and '_'
  v1::PinOwner owner;
};

struct Environment {
  io::FileSystem* files = nullptr;
  io::IoEngine* engine = nullptr;
  bool direct_io = false;
  std::string state_directory;
  uint32_t file_permissions = 0640;
  uint32_t directory_permissions = 0750;
};

struct OpenParameters {
  v1::StoreName name;
  std::vector<v1::Member> members;
  std::vector<v1::Tensor> tensors;  // in the client's order
  bool positional = false;
  v1::Profile profile = v1::PROFILE_TORCH_CPU;
  v1::Resume resume = v1::RESUME_UNSPECIFIED;
  uint64_t bucket_elements = kMaxBucketElements;
  uint64_t commit_every = 1;
  uint64_t blob_limit_bytes = 0;
  uint32_t owner_uid = 0;
  // Opens at the live commit of this sequence instead of the newest, by a new id (Rollback): the
  // way past a newest commit whose data is damaged.
  std::optional<uint64_t> rollback_to;
  // Commits that may be pinned at once: each holds an image of the state beyond the three.
  uint32_t max_pins = 2;
};

// A change of the store under way. The files it writes go back to the store when it is destroyed
// without a commit and no later state refers to their images (what was written is then nobody's).
// Files of its base that it does not rewrite are kept as long as it lives, so whoever holds its
// uncommitted state, for a later Begin, holds the Mutation too.
class Mutation {
 public:
  virtual ~Mutation() = default;
  uint64_t id() const { return id_; }
  // The images after the change: written ones are new, the others are those of the base.
  const Images& images() const { return images_; }
  // Those buckets that are written.
  const std::vector<bool>& rewritten() const { return rewritten_; }

 protected:
  uint64_t id_ = 0;
  Images images_;
  std::vector<bool> rewritten_;
};

// The state of one (job, role, rank) on disk: names, files, records. Knows the rules of commits,
// dropping, recovery and reservation; moves no bulk data itself: the pipeline reads from, and
// writes to, the images. Thread-safe. Commit, MarkDue, Rollback and Pin run one at a time; Drop and
// Begin wait for them only while a record is written or a pin is made.
//
// Order of a change: Begin -> bulk data written to images()[b].file() and set_checksum for every
// unit -> Commit, which writes the checksum tables, syncs each file and then makes the record
// durable. A change that is applied but never committed (its sequence is not due) may be the base
// of the next: Commit completes every image of its state that no commit names yet.
class Store {
 public:
  // Creates, completes or recovers the store. The caller holds the state directory's lock and
  // opens a store once at a time. With RESUME_NEVER existing commits stay, and newest() shows them,
  // until the first filling (a Begin without base) is committed. Errors:
  //   ALREADY_EXISTS      state without a resume choice (message: its sequence and age)
  //   NOT_FOUND           RESUME_MUST without state
  //   FAILED_PRECONDITION another layout than the stored one (message: the first difference)
  //   PERMISSION_DENIED   the store belongs to another uid (root opens any)
  //   INVALID_ARGUMENT    names, members, tensors, limits (message: the first that is wrong)
  //   RESOURCE_EXHAUSTED  no room for the images: nothing is left behind
  //   DATA_LOSS           record, layout or file damaged (message: file and offset)
  static absl::StatusOr<std::unique_ptr<Store>> Open(const Environment& environment,
                                                     const OpenParameters& parameters);
  virtual ~Store() = default;

  virtual const std::string& directory() const = 0;
  virtual const std::string& uuid() const = 0;
  virtual std::shared_ptr<const Layout> layout() const = 0;
  // Store index of each tensor of OpenParameters; tensors of layout() that the newest commit does
  // not name yet (none for an empty store).
  virtual const std::vector<uint32_t>& tensor_index() const = 0;
  virtual std::vector<uint32_t> added_tensors() const = 0;
  virtual uint64_t reserved_bytes() const = 0;
  virtual std::vector<std::string> warnings() const = 0;

  // The newest commit; null for an empty store.
  virtual std::shared_ptr<const State> newest() const = 0;
  // Live commits, newest first.
  virtual std::vector<v1::CommitInfo> live() const = 0;

  // Arrival of the Step or Skip of `sequence`: erases dead records, then keeps, of the live
  // commits, the newest due one with sequence <= sequence - 2 and that of sequence - 1, and erases
  // the others.
  virtual absl::Status Drop(uint64_t sequence) = 0;

  // Starts the next id. `base`: the state it follows (its images are referred to for buckets that
  // are not rewritten; null: the first filling). Both vectors are by bucket, as long as the base's
  // layout or (the Refresh of added tensors) that of layout() has buckets; those that the base does
  // not have must be rewritten. Ids are taken in the order of Begin. Between a Drop and its step it
  // does no I/O; a change that finds no free file makes one more image: RESOURCE_EXHAUSTED if there
  // is no room for it (the store goes on).
  virtual absl::StatusOr<std::unique_ptr<Mutation>> Begin(
      const State* base, const std::vector<bool>& rewritten,
      const std::vector<bool>& moments_zero) = 0;

  // Makes `state` (whose images are the mutation's) the newest commit. Blocks until it is durable.
  // Commits are called in the order of their ids. INVALID_ARGUMENT for a state that does not fit
  // (images, t, blob above the limit given at Open): nothing is changed. After any other error the
  // store is closed for changes: a failed sync is never retried, every later call is
  // FAILED_PRECONDITION with the first error.
  virtual absl::Status Commit(std::unique_ptr<Mutation> mutation, const State& state) = 0;

  // Marks the newest commit due (a Flush after the fact): one more record, under its own id. OK at
  // once if it is due.
  virtual absl::Status MarkDue() = 0;

  // Makes the state of the live commit with this sequence the newest, by a new id that is due.
  // NOT_FOUND naming the live sequences. Durable when it returns.
  virtual absl::StatusOr<std::shared_ptr<const State>> Rollback(uint64_t sequence) = 0;

  // Pins the newest commit: links its files into pins/<id>/ and reserves what stepping then lacks,
  // so that no later step needs room. Pins of one commit share its files. Durable when it returns,
  // gone with the next Open. On an error nothing of it stays and the store goes on:
  //   FAILED_PRECONDITION  an empty store, or one that takes no more changes
  //   INVALID_ARGUMENT     the id cannot be a directory's name
  //   ALREADY_EXISTS       there is a pin of this id
  //   RESOURCE_EXHAUSTED   no room for one more image, or max_pins other commits are pinned
  virtual absl::StatusOr<std::shared_ptr<const PinnedCommit>> Pin(
      const PinParameters& parameters) = 0;
  // Drops a pin; returns at once, what it held goes with the next Sweep. NOT_FOUND if there is
  // none.
  virtual absl::Status Unpin(const std::string& id) = 0;
  // In the order of their making.
  virtual std::vector<std::shared_ptr<const PinnedCommit>> pins() const = 0;
  // Of the pin's files, those that the store itself does not need any more: only pins hold them.
  virtual uint64_t HeldBytes(const PinnedCommit& pin) const = 0;
  // The pinned files of the buckets [first, first + count), as far as there are any, open to be
  // read. NOT_FOUND if there is no such pin.
  virtual absl::StatusOr<std::vector<std::unique_ptr<io::File>>> OpenPinned(
      const std::string& id, uint32_t first, uint32_t count) const = 0;

  // Removes what dropped pins held, and files that nothing needs any more. Blocks as long as the
  // file system takes; steps go on beside it. Never part of a step.
  virtual absl::Status Sweep() = 0;
  virtual bool wants_sweep() const = 0;
};

}  // namespace moment::store
