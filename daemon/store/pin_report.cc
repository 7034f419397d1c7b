#include "daemon/store/pin_report.h"

#include <utility>

#include "daemon/base/errors.h"
#include "daemon/store/names.h"
#include "daemon/store/pin_files.h"

namespace moment::store {
namespace {

// The links of a pin.
absl::StatusOr<std::vector<io::FileInfo>> LinksOf(io::FileSystem& files, const std::string& pin) {
  std::vector<io::FileInfo> links;
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> members, files.List(pin));
  for (const std::string& member : members) {
    const std::string path = Join(pin, member);
    MOMENT_ASSIGN_OR_RETURN(const io::FileInfo info, files.Stat(path));
    if (!info.directory) {
      continue;
    }
    MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(path));
    for (const std::string& name : names) {
      if (IsPinnedFileName(name)) {
        MOMENT_ASSIGN_OR_RETURN(const io::FileInfo link, files.Stat(Join(path, name)));
        links.push_back(link);
      }
    }
  }
  return links;
}

void AddManifest(io::FileSystem& files, io::IoEngine& engine, const std::string& directory,
                 v1::PinSummary& summary) {
  const absl::StatusOr<v1::PinManifest> manifest = LoadPin(files, engine, directory, summary.id());
  if (!manifest.ok()) {
    summary.set_problem(absl::IsNotFound(manifest.status())
                            ? "half of a pin; the next Open of the store removes it"
                            : std::string(manifest.status().message()));
    return;
  }
  *summary.mutable_owner() = manifest->owner();
  summary.set_unix_time_ns(manifest->unix_time_ns());
  summary.set_commit(manifest->commit().id());
  summary.set_sequence(manifest->commit().sequence());
}

}  // namespace

absl::StatusOr<PinReport> ReportPins(io::FileSystem& files, io::IoEngine& engine,
                                     const std::string& directory,
                                     const std::set<uint64_t>& inodes) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> ids, PinIds(files, directory));
  PinReport report;
  std::set<uint64_t> counted = inodes;
  for (const std::string& id : ids) {
    const absl::StatusOr<std::vector<io::FileInfo>> links =
        LinksOf(files, PinDirectory(directory, id));
    if (absl::IsNotFound(links.status())) {
      continue;
    }
    MOMENT_RETURN_IF_ERROR(links.status());
    v1::PinSummary summary;
    summary.set_id(id);
    for (const io::FileInfo& link : *links) {
      summary.set_size_bytes(summary.size_bytes() + link.size_bytes);
      if (inodes.count(link.inode) == 0) {
        summary.set_held_bytes(summary.held_bytes() + link.size_bytes);
      }
      report.held_bytes += counted.insert(link.inode).second ? link.size_bytes : 0;
    }
    AddManifest(files, engine, directory, summary);
    report.pins.push_back(std::move(summary));
  }
  return report;
}

}  // namespace moment::store
