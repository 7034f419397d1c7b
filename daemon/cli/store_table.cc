#include "daemon/cli/store_table.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "daemon/cli/table.h"
#include "daemon/cli/target.h"
#include "daemon/cli/units.h"
#include "daemon/store/names.h"

namespace moment::cli {
namespace {

// A store whose names cannot be read is known by its directory.
std::string LabelOf(const v1::StoreSummary& store) {
  return store.name().job().empty() ? store.directory() : NameText(store.name());
}

Cell StateCell(const v1::StoreSummary& store) {
  if (!store.problem().empty()) {
    return OpenWasCut(store) ? Cell("incomplete", Colour::kYellow)
                             : Cell("unreadable", Colour::kRed);
  }
  return store.session().empty() ? Cell("idle") : Cell("open", Colour::kGreen);
}

void AddStore(const v1::StoreSummary& store, Table& table) {
  if (!store.problem().empty()) {
    table.AddRow({LabelOf(store), "-", "-", "-", "-", "-", "-", StateCell(store)});
    return;
  }
  const bool empty = store.last_commit_unix_time_ns() == 0;
  table.AddRow({LabelOf(store), empty ? "-" : absl::StrCat(store.sequence()),
                HumanTime(store.last_commit_unix_time_ns()), HumanMagnitude(store.parameters()),
                absl::StrCat(store.tensors()), HumanBytes(store.disk_bytes()),
                absl::StrCat(store.owner_uid()), StateCell(store)});
}

}  // namespace

bool OpenWasCut(const v1::StoreSummary& store) {
  std::error_code error;
  const std::filesystem::path directory = store.directory();
  return store.name().job().empty() && std::filesystem::is_directory(directory, error) &&
         !std::filesystem::exists(directory / store::kStoreFileName, error) && !error;
}

void PrintStores(const v1::ListResponse& list, const std::string& place, Console& console) {
  if (list.stores().empty()) {
    console.out << "no stores in " << Printable(place) << "\n";
    return;
  }
  Table table({{"STORE"},
               {"SEQUENCE", Align::kRight},
               {"LAST COMMIT (UTC)"},
               {"PARAMETERS", Align::kRight},
               {"TENSORS", Align::kRight},
               {"ON DISK", Align::kRight},
               {"UID", Align::kRight},
               {"STATE"}});
  for (const v1::StoreSummary& store : list.stores()) {
    AddStore(store, table);
  }
  table.Print(console);
  for (const v1::StoreSummary& store : list.stores()) {
    if (!store.problem().empty()) {
      console.out << Printable(absl::StrCat(LabelOf(store), ": ", store.problem())) << "\n";
    }
  }
}

}  // namespace moment::cli
