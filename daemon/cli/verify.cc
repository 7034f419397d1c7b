// momentctl verify: reads every checksum of one store, or of all.
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/command.h"
#include "daemon/cli/progress.h"
#include "daemon/cli/source.h"
#include "daemon/cli/store_table.h"
#include "daemon/cli/units.h"
#include "daemon/cli/verify_report.h"

namespace moment::cli {
namespace {

struct VerifyCommandOptions {
  CommonOptions common;
  TargetOptions target;
  std::string state_directory;
};

struct Work {
  std::unique_ptr<Source> source;
  std::vector<v1::StoreSummary> stores;  // name, directory or both
};

absl::StatusOr<Work> WholeSource(std::unique_ptr<Source> source) {
  MOMENT_ASSIGN_OR_RETURN(const v1::ListResponse list, source->List());
  return Work{std::move(source), {list.stores().begin(), list.stores().end()}};
}

absl::StatusOr<Work> WorkOfPath(const std::string& path, const CommonOptions& options,
                                Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const PathTarget target, ClassifyPath(path));
  if (target.kind != PathTarget::Kind::kStateDirectory && target.kind != PathTarget::Kind::kStore) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is one file of a store: verify the store, ", target.store_directory));
  }
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Source> source, OpenPath(target, options, context));
  if (target.kind == PathTarget::Kind::kStateDirectory) {
    return WholeSource(std::move(source));
  }
  v1::StoreSummary store;
  store.set_directory(target.store_directory);
  return Work{std::move(source), {store}};
}

absl::StatusOr<Work> FindWork(const VerifyCommandOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const Target target, options.target.Resolve());
  if (target.kind == Target::Kind::kPath) {
    return WorkOfPath(target.path, options.common, context);
  }
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Source> source,
                          OpenByName(options.state_directory, options.common, context));
  if (target.kind == Target::Kind::kEverything) {
    return WholeSource(std::move(source));
  }
  v1::StoreSummary store;
  *store.mutable_name() = target.name;
  return Work{std::move(source), {store}};
}

std::string LabelOf(const v1::StoreSummary& store) {
  return store.name().job().empty() ? store.directory() : NameText(store.name());
}

// Damage that keeps a store from being read at all is damage like any other.
void AddDamage(const std::string& path, absl::string_view message, VerifiedStore& result) {
  v1::VerifyProblem problem;
  problem.set_path(path);
  problem.set_message(std::string(message));
  result.problems.push_back(std::move(problem));
}

// CANCELLED and UNAVAILABLE end the command; other errors are this store's result.
absl::StatusOr<VerifiedStore> VerifyOne(Source& source, const v1::StoreSummary& store,
                                        Context& context) {
  VerifiedStore result{
      .label = LabelOf(store), .name = store.name(), .directory = store.directory()};
  if (!store.problem().empty() && OpenWasCut(store)) {
    result.skipped = store.problem();
    return result;
  }
  if (!store.problem().empty()) {
    AddDamage(store.directory(), store.problem(), result);
    return result;
  }
  Progress progress(context.console, absl::StrCat("verify ", result.label));
  const absl::Status status =
      source.Verify({.name = store.name(), .directory = store.directory()}, context.cancellation,
                    [&](const v1::VerifyResponse& response) {
                      result.size_bytes = response.bytes_done();
                      result.problems.insert(result.problems.end(), response.problems().begin(),
                                             response.problems().end());
                      progress.Update(response.bytes_done(), response.bytes_total());
                    });
  result.seconds = progress.elapsed_seconds();
  if (absl::IsCancelled(status) || absl::IsUnavailable(status)) {
    return status;
  }
  if (absl::IsDataLoss(status)) {
    AddDamage(store.directory(), status.message(), result);
  } else {
    result.error = status;
  }
  return result;
}

absl::Status Interrupted(const std::vector<VerifiedStore>& done, uint64_t stores) {
  uint64_t problems = 0;
  for (const VerifiedStore& store : done) {
    problems += store.problems.size();
  }
  return absl::CancelledError(absl::StrCat("interrupted: ", done.size(), " of ", stores,
                                           " stores verified, ", problems,
                                           " problems in them; nothing was changed"));
}

Outcome RunVerify(const VerifyCommandOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const Work work, FindWork(options, context));
  std::vector<VerifiedStore> results;
  for (const v1::StoreSummary& store : work.stores) {
    absl::StatusOr<VerifiedStore> result = VerifyOne(*work.source, store, context);
    if (context.cancellation.cancelled()) {
      return Interrupted(results, work.stores.size());
    }
    MOMENT_RETURN_IF_ERROR(result.status());
    results.push_back(*std::move(result));
  }
  // The one store that was asked for cannot be read: that is the command's failure.
  if (results.size() == 1 && !results[0].error.ok()) {
    return results[0].error;
  }
  if (options.common.json) {
    context.console.out << VerifyDocument(results, work.source->place());
  } else {
    PrintVerified(results, work.source->place(), context.console);
  }
  return ExitCodeOfVerified(results);
}

}  // namespace

void AddVerifyCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<VerifyCommandOptions>();
  CLI::App* command = app.add_subcommand("verify", "Read every checksum; exit 5 if one is wrong");
  AddTargetOptions(*command, options->target,
                   "A store (job/role/rank, or its directory) or a state directory; everything the "
                   "daemon has if absent");
  AddStateDirectoryOption(*command, options->state_directory);
  AddCommonOptions(*command, options->common);
  command->callback([options, &invocation] {
    invocation.run = [options](Context& context) { return RunVerify(*options, context); };
  });
}

}  // namespace moment::cli
