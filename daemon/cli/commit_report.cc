#include "daemon/cli/commit_report.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/table.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

std::string Hex(uint64_t digest) { return absl::StrCat(absl::Hex(digest, absl::kZeroPad16)); }

// "0-51, 60"
std::string RunsText(const v1::TensorSet& set) {
  std::vector<std::string> runs;
  for (const v1::TensorRun& run : set.runs()) {
    const uint64_t last = uint64_t{run.first()} + run.count() - 1;
    if (run.count() == 1) {
      runs.push_back(absl::StrCat(run.first()));
    } else if (run.count() > 1) {
      runs.push_back(absl::StrCat(run.first(), "-", last));
    }
  }
  return runs.empty() ? "none" : absl::StrJoin(runs, ", ");
}

std::string NumberText(double value) { return absl::StrFormat("%.12g", value); }

std::string ModeText(v1::AdamMode mode) {
  const google::protobuf::EnumValueDescriptor* value =
      v1::AdamMode_descriptor()->FindValueByNumber(mode);
  return value == nullptr ? "unknown" : EnumText(*value);
}

void PrintFacts(const v1::CommitRecord& commit, Console& console) {
  Facts facts;
  facts.Add("commit", absl::StrCat(commit.id()), Colour::kBold);
  facts.Add("sequence", absl::StrCat(commit.sequence()));
  facts.Add("due", commit.due() ? "yes" : "no");
  facts.Add("step id", absl::BytesToHexString(commit.step_id()));
  facts.Add("made", absl::StrCat(HumanTime(commit.unix_time_ns()), " UTC"));
  facts.Add("store uuid", commit.store_uuid());
  facts.Add("layout", Hex(commit.layout_digest()));
  facts.Add("commit every", commit.commit_every() == 0 ? "Flush and Save alone"
                                                       : absl::StrCat(commit.commit_every()));
  if (!commit.blob().empty()) {
    facts.Add("blob", HumanBytes(commit.blob().size()));
  }
  facts.Print(console);
}

void PrintImages(const v1::CommitRecord& commit, const v1::Layout* layout, Console& console) {
  Table table({{"BUCKET", Align::kRight},
               {"NAME"},
               {"FILE", Align::kRight},
               {"WRITTEN BY", Align::kRight},
               {"MOMENTS"},
               {"CHECKSUMS DIGEST"}});
  for (int i = 0; i < commit.buckets_size(); ++i) {
    const v1::BucketImage& image = commit.buckets(i);
    std::string name = "-";
    if (layout != nullptr && i < layout->buckets_size() &&
        layout->buckets(i).member() < static_cast<uint32_t>(layout->members_size())) {
      const v1::Bucket& bucket = layout->buckets(i);
      name = absl::StrFormat("%s/%05u", layout->members(static_cast<int>(bucket.member())).name(),
                             bucket.number());
    }
    table.AddRow({absl::StrCat(i), name, absl::StrCat(image.file()),
                  absl::StrCat(image.written_by()), image.moments_zero() ? "zero" : "stored",
                  Hex(image.checksums_digest())});
  }
  console.out << "\n";
  table.Print(console);
}

void PrintGroups(const v1::CommitRecord& commit, Console& console) {
  Table table({{"GROUP", Align::kRight},
               {"MODE"},
               {"LR", Align::kRight},
               {"BETA1", Align::kRight},
               {"BETA2", Align::kRight},
               {"EPS", Align::kRight},
               {"WEIGHT DECAY", Align::kRight},
               {"TENSORS"}});
  for (int i = 0; i < commit.groups_size(); ++i) {
    const v1::Hyperparameters& group = commit.groups(i).hyperparameters();
    table.AddRow({absl::StrCat(i), ModeText(group.mode()), NumberText(group.lr()),
                  NumberText(group.beta1()), NumberText(group.beta2()), NumberText(group.eps()),
                  NumberText(group.weight_decay()), RunsText(commit.groups(i).tensors())});
  }
  if (!table.empty()) {
    console.out << "\n";
  }
  table.Print(console);
}

void PrintSteps(const v1::CommitRecord& commit, Console& console) {
  Table table({{"TENSORS"}, {"T", Align::kRight}});
  for (const v1::TensorSteps& steps : commit.steps()) {
    v1::TensorSet set;
    set.add_runs()->set_first(steps.first());
    set.mutable_runs(0)->set_count(steps.count());
    table.AddRow({RunsText(set), absl::StrCat(steps.t())});
  }
  if (!table.empty()) {
    console.out << "\n";
  }
  table.Print(console);
}

}  // namespace

void PrintCommit(const v1::CommitRecord& commit, const v1::Layout* layout, Console& console) {
  PrintFacts(commit, console);
  PrintImages(commit, layout, console);
  PrintGroups(commit, console);
  PrintSteps(commit, console);
}

std::vector<uint64_t> StepsByTensor(const v1::CommitRecord& commit) {
  std::vector<uint64_t> t;
  for (const v1::TensorSteps& steps : commit.steps()) {
    t.resize(steps.first(), 0);
    t.resize(uint64_t{steps.first()} + steps.count(), steps.t());
  }
  return t;
}

}  // namespace moment::cli
