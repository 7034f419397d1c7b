// momentctl drop: lets a pin go.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/command.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/source.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

struct DropOptions {
  CommonOptions common;
  TargetOptions target;
  std::string pin;
};

struct Place {
  std::unique_ptr<Source> source;
  StoreReference store;
  std::string label;
};

absl::StatusOr<Place> FindStore(const DropOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const Target target, options.target.Resolve());
  if (target.kind == Target::Kind::kStore) {
    MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Source> source, OpenDaemon(options.common));
    return Place{std::move(source), {.name = target.name, .directory = {}}, NameText(target.name)};
  }
  if (target.kind == Target::Kind::kEverything) {
    return absl::InvalidArgumentError("name the store whose pin is to be dropped");
  }
  MOMENT_ASSIGN_OR_RETURN(const PathTarget path, ClassifyPath(target.path));
  if (path.kind != PathTarget::Kind::kStore) {
    return absl::InvalidArgumentError(
        absl::StrCat(target.path, " is no store's directory: name the store whose pin it is"));
  }
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Source> source, OpenPath(path, options.common, context));
  return Place{
      std::move(source), {.name = {}, .directory = path.store_directory}, path.store_directory};
}

Outcome RunDrop(const DropOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const Place place, FindStore(options, context));
  MOMENT_ASSIGN_OR_RETURN(const v1::DropResponse dropped,
                          place.source->DropPin(place.store, options.pin));
  if (options.common.json) {
    context.console.out << MessageDocument(dropped, {{"store", place.label}});
    return ExitCode::kFine;
  }
  context.console.out << Printable(absl::StrCat("dropped pin ", dropped.pin(), " of ", place.label,
                                                ": ", HumanBytes(dropped.freed_bytes()), " freed"))
                      << "\n";
  return ExitCode::kFine;
}

}  // namespace

void AddDropCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<DropOptions>();
  CLI::App* command = app.add_subcommand(
      "drop", "Let a pin go: its trainer may still read what it has open, the disk is given back");
  AddTargetOptions(*command, options->target, "The store (job/role/rank, or its directory)");
  command
      ->add_option(
          "--pin", options->pin,
          "Its id, or a beginning that no other pin of the store has; `inspect` shows them")
      ->required();
  AddCommonOptions(*command, options->common);
  command->callback([options, &invocation] {
    invocation.run = [options](Context& context) { return RunDrop(*options, context); };
  });
}

}  // namespace moment::cli
