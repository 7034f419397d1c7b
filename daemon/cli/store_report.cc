#include "daemon/cli/store_report.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/cli/commit_report.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/pin_table.h"
#include "daemon/cli/table.h"
#include "daemon/cli/target.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

std::string TypeText(v1::DataType type) {
  const v1::DataType shown = type == v1::DATA_TYPE_UNSPECIFIED ? v1::DATA_TYPE_FLOAT32 : type;
  const google::protobuf::EnumValueDescriptor* value =
      v1::DataType_descriptor()->FindValueByNumber(shown);
  return value == nullptr ? absl::StrCat("unknown (", static_cast<int>(type), ")")
                          : EnumText(*value);
}

std::string ProfileText(v1::Profile profile) {
  const google::protobuf::EnumValueDescriptor* value =
      v1::Profile_descriptor()->FindValueByNumber(profile);
  return value == nullptr ? absl::StrCat("unknown (", static_cast<int>(profile), ")")
                          : EnumText(*value);
}

uint64_t ElementsOf(const v1::Tensor& tensor) {
  uint64_t elements = 1;
  for (const uint64_t extent : tensor.shape()) {
    elements *= extent;
  }
  return elements;
}

void PrintFacts(const v1::DescribeResponse& store, Console& console) {
  const v1::StoreSummary& summary = store.summary();
  const v1::Layout& layout = store.layout();
  Facts facts;
  facts.Add("store", NameText(store.store().name()), Colour::kBold);
  facts.Add("directory", summary.directory());
  facts.Add("uuid", store.store().store_uuid());
  facts.Add("owner uid", absl::StrCat(store.store().owner_uid()));
  facts.Add("format", absl::StrCat("store ", store.store().format_version(), ", layout ",
                                   layout.format_version()));
  facts.Add("profile", ProfileText(layout.profile()));
  facts.Add("parameters",
            absl::StrCat(HumanCount(summary.parameters()), " in ",
                         HumanCount(static_cast<uint64_t>(layout.tensors_size())), " tensors",
                         layout.positional() ? ", without names (positional)" : ""));
  facts.Add("on disk", HumanBytes(summary.disk_bytes()));
  facts.Add("session", summary.session().empty() ? "none" : summary.session());
  if (!summary.problem().empty()) {
    facts.Add("problem", summary.problem(), Colour::kRed);
  }
  facts.Print(console);
}

void PrintMembers(const v1::Layout& layout, Console& console) {
  const auto members = static_cast<size_t>(layout.members_size());
  std::vector<uint64_t> tensors(members, 0);
  std::vector<uint64_t> elements(members, 0);
  std::vector<uint64_t> buckets(members, 0);
  for (const v1::Tensor& tensor : layout.tensors()) {
    if (tensor.member() < members) {
      ++tensors[tensor.member()];
      elements[tensor.member()] += ElementsOf(tensor);
    }
  }
  for (const v1::Bucket& bucket : layout.buckets()) {
    if (bucket.member() < members) {
      ++buckets[bucket.member()];
    }
  }
  Table table({{"MEMBER"},
               {"TENSORS", Align::kRight},
               {"PARAMETERS", Align::kRight},
               {"BUCKETS", Align::kRight},
               {"MAIN"},
               {"EXP_AVG"},
               {"EXP_AVG_SQ"}});
  for (size_t i = 0; i < members; ++i) {
    const v1::Member& member = layout.members(static_cast<int>(i));
    table.AddRow({member.name(), absl::StrCat(tensors[i]), HumanCount(elements[i]),
                  absl::StrCat(buckets[i]), TypeText(v1::DATA_TYPE_FLOAT32),
                  TypeText(member.segments().exp_avg()), TypeText(member.segments().exp_avg_sq())});
  }
  console.out << "\n";
  table.Print(console);
}

void PrintCommits(const v1::DescribeResponse& store, Console& console) {
  console.out << "\n";
  if (store.commits().empty()) {
    console.out << "no commit: the store is empty until its first Refresh\n";
    return;
  }
  Table table({{"COMMIT", Align::kRight},
               {"SEQUENCE", Align::kRight},
               {"DUE"},
               {"MADE (UTC)"},
               {"STEP ID"}});
  for (const v1::CommitRecord& commit : store.commits()) {
    table.AddRow({absl::StrCat(commit.id()), absl::StrCat(commit.sequence()),
                  commit.due() ? "yes" : "no", HumanTime(commit.unix_time_ns()),
                  absl::BytesToHexString(commit.step_id())});
  }
  table.Print(console);
}

// Below the store's directory where it lies there.
std::string ShortPath(const std::string& path, const std::string& directory) {
  const absl::string_view prefix(directory);
  if (!prefix.empty() && path.size() > prefix.size() + 1 &&
      path.compare(0, prefix.size(), directory) == 0) {
    return path.substr(prefix.size() + 1);
  }
  return path;
}

void PrintFiles(const v1::DescribeResponse& store, Console& console) {
  Table table({{"BUCKET", Align::kRight}, {"FILE"}, {"SIZE", Align::kRight}, {"COMMITS"}});
  for (const v1::BucketFile& file : store.files()) {
    table.AddRow({absl::StrCat(file.bucket()), ShortPath(file.path(), store.summary().directory()),
                  HumanBytes(file.size_bytes()),
                  file.commits().empty() ? "free" : absl::StrJoin(file.commits(), ", ")});
  }
  if (!table.empty()) {
    console.out << "\n";
  }
  table.Print(console);
}

void PrintTensors(const v1::DescribeResponse& store, Console& console) {
  const v1::Layout& layout = store.layout();
  const std::vector<uint64_t> t =
      store.commits().empty() ? std::vector<uint64_t>() : StepsByTensor(store.commits(0));
  Table table({{"TENSOR", Align::kRight},
               {"MEMBER"},
               {"SHAPE"},
               {"TYPE"},
               {"ELEMENTS", Align::kRight},
               {"T", Align::kRight},
               {"NAME"}});
  for (int i = 0; i < layout.tensors_size(); ++i) {
    const v1::Tensor& tensor = layout.tensors(i);
    const auto index = static_cast<size_t>(i);
    const bool known = tensor.member() < static_cast<uint32_t>(layout.members_size());
    table.AddRow({absl::StrCat(i),
                  known ? layout.members(static_cast<int>(tensor.member())).name() : "?",
                  absl::StrCat("[", absl::StrJoin(tensor.shape(), ", "), "]"),
                  TypeText(tensor.parameter_type()), HumanCount(ElementsOf(tensor)),
                  index < t.size() ? absl::StrCat(t[index]) : "-", tensor.name()});
  }
  console.out << "\n";
  table.Print(console);
}

}  // namespace

void PrintStore(const v1::DescribeResponse& store, bool tensors, Console& console) {
  PrintFacts(store, console);
  PrintMembers(store.layout(), console);
  PrintCommits(store, console);
  PrintFiles(store, console);
  PinTable pins;
  for (const v1::PinSummary& pin : store.summary().pins()) {
    pins.Add(NameText(store.store().name()), pin);
  }
  pins.Print(console);
  if (tensors) {
    PrintTensors(store, console);
  }
}

}  // namespace moment::cli
