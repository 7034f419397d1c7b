// momentctl list: the stores of a daemon, or of a state directory.
#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/command.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/source.h"
#include "daemon/cli/store_table.h"

namespace moment::cli {
namespace {

struct ListOptions {
  CommonOptions common;
  std::string state_directory;
};

Outcome RunList(const ListOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                          OpenByName(options.state_directory, options.common, context));
  MOMENT_ASSIGN_OR_RETURN(const v1::ListResponse list, source->List());
  if (options.common.json) {
    context.console.out << MessageDocument(list, {{"source", source->place()}});
  } else {
    PrintStores(list, source->place(), context.console);
  }
  return ExitCode::kFine;
}

}  // namespace

void AddListCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app.add_subcommand("list", "List the stores");
  AddCommonOptions(*command, options->common);
  AddStateDirectoryOption(*command, options->state_directory);
  command->callback([options, &invocation] {
    invocation.run = [options](Context& context) { return RunList(*options, context); };
  });
}

}  // namespace moment::cli
