// momentctl inspect: one state directory, store, bucket file or commit.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"
#include "daemon/cli/command.h"
#include "daemon/cli/commit_report.h"
#include "daemon/cli/file_report.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/source.h"
#include "daemon/cli/store_report.h"
#include "daemon/cli/store_table.h"

namespace moment::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
  TargetOptions target;
  std::string state_directory;
  uint64_t commit = 0;
  CLI::Option* commit_option = nullptr;
  bool tensors = false;
};

absl::StatusOr<const v1::CommitRecord*> FindCommit(const v1::DescribeResponse& store, uint64_t id) {
  std::vector<uint64_t> ids;
  for (const v1::CommitRecord& commit : store.commits()) {
    if (commit.id() == id) {
      return &commit;
    }
    ids.push_back(commit.id());
  }
  return absl::NotFoundError(absl::StrCat("no live commit with id ", id, "; there are: ",
                                          ids.empty() ? "none" : absl::StrJoin(ids, ", ")));
}

Outcome ShowStore(const InspectOptions& options, Source& source, const StoreReference& reference,
                  Console& console) {
  MOMENT_ASSIGN_OR_RETURN(const v1::DescribeResponse store, source.Describe(reference));
  if (options.commit_option->count() > 0) {
    MOMENT_ASSIGN_OR_RETURN(const v1::CommitRecord* commit, FindCommit(store, options.commit));
    if (options.common.json) {
      console.out << MessageDocument(*commit, {{"kind", "commit"}, {"source", source.place()}});
    } else {
      PrintCommit(*commit, &store.layout(), console);
    }
    return ExitCode::kFine;
  }
  if (options.common.json) {
    console.out << MessageDocument(store, {{"kind", "store"}, {"source", source.place()}});
  } else {
    PrintStore(store, options.tensors, console);
  }
  return ExitCode::kFine;
}

Outcome ShowStateDirectory(const InspectOptions& options, Source& source, const std::string& path,
                           Console& console) {
  MOMENT_ASSIGN_OR_RETURN(const v1::ListResponse list, source.List());
  if (options.common.json) {
    console.out << MessageDocument(
        list, {{"kind", "state_directory"}, {"source", source.place()}, {"path", path}});
  } else {
    PrintStores(list, path, console);
  }
  return ExitCode::kFine;
}

Outcome ShowBucketFile(const InspectOptions& options, Source& source, const PathTarget& target,
                       Console& console) {
  MOMENT_ASSIGN_OR_RETURN(const store::BucketFileView file, source.BucketFile(target));
  if (options.common.json) {
    console.out << BucketFileDocument(file, source.place());
  } else {
    PrintBucketFile(file, options.tensors, console);
  }
  return ExitCode::kFine;
}

Outcome ShowCommitFile(const InspectOptions& options, Source& source, const PathTarget& target,
                       Console& console) {
  MOMENT_ASSIGN_OR_RETURN(const store::CommitFileView file, source.CommitFile(target));
  if (options.common.json) {
    console.out << CommitFileDocument(file, source.place());
  } else {
    PrintCommitFile(file, console);
  }
  return ExitCode::kFine;
}

Outcome ShowPath(const InspectOptions& options, const std::string& path, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const PathTarget target, ClassifyPath(path));
  if (options.commit_option->count() > 0 && target.kind != PathTarget::Kind::kStore) {
    return absl::InvalidArgumentError("--commit selects a commit of a store: name the store");
  }
  MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                          OpenPath(target, options.common, context));
  switch (target.kind) {
    case PathTarget::Kind::kStateDirectory:
      return ShowStateDirectory(options, *source, target.path, context.console);
    case PathTarget::Kind::kStore:
      return ShowStore(options, *source, {.name = {}, .directory = target.store_directory},
                       context.console);
    case PathTarget::Kind::kBucketFile:
      return ShowBucketFile(options, *source, target, context.console);
    case PathTarget::Kind::kCommitFile:
      return ShowCommitFile(options, *source, target, context.console);
  }
  return absl::InternalError("unknown kind of path");
}

Outcome RunInspect(const InspectOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const Target target, options.target.Resolve());
  switch (target.kind) {
    case Target::Kind::kEverything:
      return absl::InvalidArgumentError(
          "name what to inspect: a store (job/role/rank), a directory or a file");
    case Target::Kind::kPath:
      return ShowPath(options, target.path, context);
    case Target::Kind::kStore:
      break;
  }
  MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<Source> source,
                          OpenByName(options.state_directory, options.common, context));
  return ShowStore(options, *source, {.name = target.name, .directory = {}}, context.console);
}

}  // namespace

void AddInspectCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show a state directory, a store, a bucket file or a commit");
  AddTargetOptions(*command, options->target,
                   "job/role/rank, or the path of a state directory, a store, a bucket file or a "
                   "commit file");
  options->commit_option =
      command->add_option("--commit", options->commit, "Show the live commit with this id");
  command->add_flag("--tensors", options->tensors, "List every tensor too");
  AddStateDirectoryOption(*command, options->state_directory);
  AddCommonOptions(*command, options->common);
  command->callback([options, &invocation] {
    invocation.run = [options](Context& context) { return RunInspect(*options, context); };
  });
}

}  // namespace moment::cli
