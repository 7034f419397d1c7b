#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/io/simulated_content.h"

namespace moment::io {

struct SimulatedInode;
using InodePtr = std::shared_ptr<SimulatedInode>;
using Entries = std::map<std::string, InodePtr>;

struct SimulatedInode {
  uint64_t number = 0;
  bool directory = false;
  uint64_t links = 0;
  uint64_t open_files = 0;
  uint32_t permissions = 0;
  uint32_t durable_permissions = 0;
  SimulatedContent content;  // files
  Entries entries;           // directories: as they are read
  Entries durable_entries;   // directories: as they survive
};

// The names of a simulated disk: the ones that are read, the ones that are durable, and the changes
// between them in the order in which they were made. A rename is one change of two names.
// Paths are absolute or not, alike; the root always exists. Not thread-safe (the disk's lock).
class SimulatedTree {
 public:
  struct Place {
    InodePtr directory;
    std::string name;
  };

  SimulatedTree();

  // Null if there is no such name.
  InodePtr Find(const std::string& path) const;
  // NOT_FOUND like the system's.
  absl::StatusOr<InodePtr> Require(const std::string& path, absl::string_view what) const;
  // The directory that holds, or would hold, the last name of the path.
  absl::StatusOr<Place> Locate(const std::string& path, absl::string_view what) const;

  InodePtr NewInode(bool directory, uint32_t permissions);
  // Null `inode`: the name goes.
  void Set(const Place& place, const InodePtr& inode);
  void Rename(const Place& from, const Place& to);

  // Makes every change durable that touches the directory, and permissions of what it names.
  void SyncDirectory(const InodePtr& directory);

  // Of every file that has a name or is open.
  uint64_t allocated_bytes() const;
  uint64_t unsynced_changes() const;
  SimulatedTree AfterCrash(CrashChooser& chooser) const;

 private:
  struct Edit {
    Place place;
    InodePtr inode;  // null: the name goes
  };
  struct Change {
    std::vector<Edit> edits;
    bool rename = false;  // edits: the old name goes, the new one comes
  };
  using Kept = std::map<const SimulatedInode*, Entries>;
  using Copies = std::map<const SimulatedInode*, InodePtr>;

  void Make(Change change);
  // A later change of the same name became durable: the earlier ones are part of it.
  void ForgetBefore(std::list<Change>::const_iterator change, const Place& place);
  std::set<const SimulatedInode*> All() const;
  Kept ChooseNames(CrashChooser& chooser) const;
  static InodePtr Copy(const SimulatedInode& from, const Kept& kept, CrashChooser& chooser,
                       Copies* copies);

  InodePtr root_;
  uint64_t last_number_ = 0;
  std::list<Change> pending_;
  std::vector<std::weak_ptr<SimulatedInode>> files_;
};

}  // namespace moment::io
