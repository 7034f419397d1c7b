#include "daemon/io/simulated_tree.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_split.h"
#include "daemon/base/errors.h"

namespace moment::io {
namespace {

std::vector<std::string> NamesOf(const std::string& path) {
  std::vector<std::string> names;
  for (absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (name != ".") {
      names.emplace_back(name);
    }
  }
  return names;
}

void Put(Entries* entries, const std::string& name, const InodePtr& inode) {
  if (inode == nullptr) {
    entries->erase(name);
  } else {
    (*entries)[name] = inode;
  }
}

InodePtr Get(const Entries& entries, const std::string& name) {
  auto found = entries.find(name);
  return found == entries.end() ? nullptr : found->second;
}

}  // namespace

SimulatedTree::SimulatedTree() : root_(NewInode(true, 0755)) { root_->links = 1; }

InodePtr SimulatedTree::Find(const std::string& path) const {
  InodePtr inode = root_;
  for (const std::string& name : NamesOf(path)) {
    inode = inode->directory ? Get(inode->entries, name) : nullptr;
    if (inode == nullptr) {
      return nullptr;
    }
  }
  return inode;
}

absl::StatusOr<InodePtr> SimulatedTree::Require(const std::string& path,
                                                absl::string_view what) const {
  InodePtr inode = Find(path);
  if (inode == nullptr) {
    return base::ErrnoStatus(ENOENT, what, path);
  }
  return inode;
}

absl::StatusOr<SimulatedTree::Place> SimulatedTree::Locate(const std::string& path,
                                                           absl::string_view what) const {
  std::vector<std::string> names = NamesOf(path);
  if (names.empty()) {
    return base::ErrnoStatus(EBUSY, what, path);
  }
  const std::string last = std::move(names.back());
  names.pop_back();
  InodePtr directory = root_;
  for (const std::string& name : names) {
    directory = Get(directory->entries, name);
    if (directory == nullptr || !directory->directory) {
      return base::ErrnoStatus(directory == nullptr ? ENOENT : ENOTDIR, what, path);
    }
  }
  constexpr size_t kMaxNameBytes = 255;
  if (last.size() > kMaxNameBytes) {
    return base::ErrnoStatus(ENAMETOOLONG, what, path);
  }
  return Place{directory, last};
}

InodePtr SimulatedTree::NewInode(bool directory, uint32_t permissions) {
  auto inode = std::make_shared<SimulatedInode>();
  inode->number = ++last_number_;
  inode->directory = directory;
  inode->permissions = permissions;
  inode->durable_permissions = permissions;
  if (!directory) {
    std::erase_if(files_, [](const auto& file) { return file.expired(); });
    files_.push_back(inode);
  }
  return inode;
}

void SimulatedTree::Set(const Place& place, const InodePtr& inode) { Make({{{place, inode}}}); }

void SimulatedTree::Rename(const Place& from, const Place& to) {
  const InodePtr inode = Get(from.directory->entries, from.name);
  Make({.edits = {{from, nullptr}, {to, inode}}, .rename = true});
}

void SimulatedTree::Make(Change change) {
  for (const Edit& edit : change.edits) {
    Entries& entries = edit.place.directory->entries;
    if (const InodePtr old = Get(entries, edit.place.name); old != nullptr) {
      --old->links;
    }
    Put(&entries, edit.place.name, edit.inode);
    if (edit.inode != nullptr) {
      ++edit.inode->links;
    }
  }
  pending_.push_back(std::move(change));
}

void SimulatedTree::ForgetBefore(std::list<Change>::const_iterator change, const Place& place) {
  for (auto earlier = pending_.begin(); earlier != change; ++earlier) {
    std::erase_if(earlier->edits, [&](const Edit& edit) {
      return edit.place.directory == place.directory && edit.place.name == place.name;
    });
  }
}

void SimulatedTree::SyncDirectory(const InodePtr& directory) {
  for (auto change = pending_.begin(); change != pending_.end(); ++change) {
    const bool touches =
        std::any_of(change->edits.begin(), change->edits.end(),
                    [&](const Edit& edit) { return edit.place.directory == directory; });
    if (!touches) {
      continue;
    }
    for (const Edit& edit : change->edits) {
      ForgetBefore(change, edit.place);
      Put(&edit.place.directory->durable_entries, edit.place.name, edit.inode);
    }
    change->edits.clear();
  }
  pending_.remove_if([](const Change& change) { return change.edits.empty(); });
  // The journals of ext4 and xfs are ordered: a mode that was set before is durable too.
  directory->durable_permissions = directory->permissions;
  for (const auto& [name, inode] : directory->entries) {
    inode->durable_permissions = inode->permissions;
  }
}

uint64_t SimulatedTree::allocated_bytes() const {
  uint64_t bytes = 0;
  for (const std::weak_ptr<SimulatedInode>& file : files_) {
    const InodePtr inode = file.lock();
    if (inode != nullptr && (inode->links > 0 || inode->open_files > 0)) {
      bytes += inode->content.allocated_bytes();
    }
  }
  return bytes;
}

std::set<const SimulatedInode*> SimulatedTree::All() const {
  std::set<const SimulatedInode*> all;
  std::vector<const SimulatedInode*> next = {root_.get()};
  for (const Change& change : pending_) {
    for (const Edit& edit : change.edits) {
      if (edit.inode != nullptr) {
        next.push_back(edit.inode.get());
      }
    }
  }
  while (!next.empty()) {
    const SimulatedInode* inode = next.back();
    next.pop_back();
    if (!all.insert(inode).second) {
      continue;
    }
    for (const Entries* entries : {&inode->entries, &inode->durable_entries}) {
      for (const auto& [name, child] : *entries) {
        next.push_back(child.get());
      }
    }
  }
  return all;
}

uint64_t SimulatedTree::unsynced_changes() const {
  uint64_t count = pending_.size();
  for (const SimulatedInode* inode : All()) {
    count += inode->content.unsynced_changes();
    count += inode->permissions == inode->durable_permissions ? 0 : 1;
  }
  return count;
}

SimulatedTree::Kept SimulatedTree::ChooseNames(CrashChooser& chooser) const {
  Kept kept;
  for (const SimulatedInode* inode : All()) {
    if (inode->directory) {
      kept[inode] = inode->durable_entries;
    }
  }
  chooser.NextObject();
  for (const Change& change : pending_) {
    if (!chooser.Keep()) {
      continue;
    }
    // A rename follows the change that made its old name: without that one it is absent too.
    if (change.rename && change.edits.size() == 2) {
      const Place& from = change.edits[0].place;
      if (Get(kept[from.directory.get()], from.name) != change.edits[1].inode) {
        continue;
      }
    }
    for (const Edit& edit : change.edits) {
      Put(&kept[edit.place.directory.get()], edit.place.name, edit.inode);
    }
  }
  return kept;
}

InodePtr SimulatedTree::Copy(const SimulatedInode& from, const Kept& kept, CrashChooser& chooser,
                             Copies* copies) {
  if (auto copied = copies->find(&from); copied != copies->end()) {
    return copied->second;
  }
  const auto inode = std::make_shared<SimulatedInode>();
  copies->emplace(&from, inode);
  inode->number = from.number;
  inode->directory = from.directory;
  inode->content = from.content.AfterCrash(chooser);
  const bool permissions_kept = chooser.Keep();
  inode->permissions = permissions_kept ? from.permissions : from.durable_permissions;
  inode->durable_permissions = inode->permissions;
  if (from.directory) {
    for (const auto& [name, child] : kept.at(&from)) {
      const InodePtr copied = Copy(*child, kept, chooser, copies);
      ++copied->links;
      inode->entries[name] = copied;
    }
    inode->durable_entries = inode->entries;
  }
  return inode;
}

SimulatedTree SimulatedTree::AfterCrash(CrashChooser& chooser) const {
  const Kept kept = ChooseNames(chooser);
  Copies copies;
  SimulatedTree after;
  after.root_ = Copy(*root_, kept, chooser, &copies);
  after.root_->links = 1;
  after.last_number_ = last_number_;
  for (const auto& [from, copy] : copies) {
    if (!copy->directory) {
      after.files_.push_back(copy);
    }
  }
  return after;
}

}  // namespace moment::io
