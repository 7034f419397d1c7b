#include "daemon/pipeline/change.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::pipeline {
namespace {

// A file that became shorter is found before the step that would replace it, wherever it ends.
absl::Status CheckLengths(const store::State* base) {
  for (size_t b = 0; base != nullptr && b < base->images.size(); ++b) {
    const io::File& file = base->images[b]->file();
    MOMENT_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
    if (const uint64_t expected = base->layout->buckets()[b].file_bytes; size < expected) {
      return absl::DataLossError(absl::StrCat(file.path(), " ends at offset ", size, " instead of ",
                                              expected,
                                              "; roll back to another commit or load a save"));
    }
  }
  return absl::OkStatus();
}

struct BeginArguments {
  std::shared_ptr<const store::State> base;  // null: the first filling, or one that starts over
  std::optional<uint64_t> drop_sequence;
  std::vector<bool> rewritten;
  std::vector<bool> moments_zero;
};

absl::StatusOr<std::unique_ptr<store::Mutation>> BeginChange(store::Store& store,
                                                             const BeginArguments& arguments) {
  MOMENT_RETURN_IF_ERROR(CheckLengths(arguments.base.get()));
  if (arguments.drop_sequence.has_value()) {
    MOMENT_RETURN_IF_ERROR(store.Drop(*arguments.drop_sequence));
  }
  return store.Begin(arguments.base.get(), arguments.rewritten, arguments.moments_zero);
}

}  // namespace

void Change::Begin(const Pass& pass, std::function<void(absl::Status)> begun) {
  under_way_ = true;
  BeginArguments arguments;
  arguments.base = pass.spec().whole ? nullptr : pass.base();
  arguments.drop_sequence = pass.spec().drop_sequence;
  arguments.rewritten = pass.rewritten();
  arguments.moments_zero = pass.moments_zero();
  committer_.Post([this, arguments = std::move(arguments), begun = std::move(begun)] {
    auto mutation = std::make_shared<absl::StatusOr<std::unique_ptr<store::Mutation>>>(
        BeginChange(store_, arguments));
    loop_.PostFunction([this, mutation, begun] {
      under_way_ = false;
      if (mutation->ok()) {
        mutation_ = *std::move(*mutation);
        MakeTargets();
      }
      begun(mutation->status());
    });
  });
}

void Change::MakeTargets() {
  targets_.assign(mutation_->images().size(), nullptr);
  for (size_t b = 0; b < targets_.size(); ++b) {
    if (mutation_->rewritten()[b]) {
      auto target = std::make_shared<TargetImage>();
      target->image = mutation_->images()[b];
      target->main_only = target->image->moments_zero() && target->image->fresh();
      target->unwritten = plan_.buckets()[b].count;
      targets_[b] = std::move(target);
    }
  }
}

std::shared_ptr<Version> Change::Finish(store::State next, const Version* applied) {
  next.id = mutation_->id();
  next.images = mutation_->images();
  auto version = std::make_shared<Version>();
  version->state = std::make_shared<store::State>(std::move(next));
  version->targets = std::move(targets_);
  for (size_t b = 0; applied != nullptr && b < version->targets.size(); ++b) {
    if (!mutation_->rewritten()[b] && b < applied->targets.size()) {
      version->targets[b] = applied->targets[b];
    }
  }
  version->mutation = std::move(mutation_);
  return version;
}

void Change::Drop() {
  targets_.clear();
  mutation_.reset();
}

}  // namespace moment::pipeline
