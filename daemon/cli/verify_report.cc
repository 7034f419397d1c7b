#include "daemon/cli/verify_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/cli/json_writer.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/table.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

double RateOf(uint64_t size_bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(size_bytes) / seconds : 0;
}

struct Totals {
  uint64_t size_bytes = 0;
  double seconds = 0;
  uint64_t problems = 0;
};

Totals TotalsOf(const std::vector<VerifiedStore>& stores) {
  Totals totals;
  for (const VerifiedStore& store : stores) {
    totals.size_bytes += store.size_bytes;
    totals.seconds += store.seconds;
    totals.problems += store.problems.size();
  }
  return totals;
}

void WriteTextOrNull(absl::string_view text, JsonWriter& writer) {
  text.empty() ? writer.Null() : writer.String(text);
}

void WriteStore(const VerifiedStore& store, JsonWriter& writer) {
  writer.BeginObject();
  writer.Key("name");
  if (store.name.job().empty()) {
    writer.Null();
  } else {
    WriteMessage(writer, store.name);
  }
  writer.Key("directory");
  WriteTextOrNull(store.directory, writer);
  writer.Key("bytes");
  writer.Unsigned(store.size_bytes);
  writer.Key("seconds");
  writer.Number(store.seconds);
  writer.Key("problems");
  writer.BeginArray();
  for (const v1::VerifyProblem& problem : store.problems) {
    WriteMessage(writer, problem);
  }
  writer.EndArray();
  writer.Key("skipped");
  WriteTextOrNull(store.skipped, writer);
  writer.Key("error");
  WriteTextOrNull(store.error.message(), writer);
  writer.EndObject();
}

Cell ResultCell(const VerifiedStore& store) {
  if (!store.problems.empty()) {
    return Cell(
        absl::StrCat(store.problems.size(), store.problems.size() == 1 ? " problem" : " problems"),
        Colour::kRed);
  }
  if (!store.skipped.empty()) {
    return Cell("skipped", Colour::kYellow);
  }
  return store.error.ok() ? Cell("ok", Colour::kGreen) : Cell("not verified", Colour::kYellow);
}

}  // namespace

std::string VerifyDocument(const std::vector<VerifiedStore>& stores, const std::string& place) {
  const Totals totals = TotalsOf(stores);
  JsonWriter writer;
  writer.BeginObject();
  writer.Key("schema_version");
  writer.Signed(kJsonSchemaVersion);
  writer.Key("source");
  writer.String(place);
  writer.Key("stores");
  writer.BeginArray();
  for (const VerifiedStore& store : stores) {
    WriteStore(store, writer);
  }
  writer.EndArray();
  writer.Key("problem_count");
  writer.Unsigned(totals.problems);
  writer.Key("bytes");
  writer.Unsigned(totals.size_bytes);
  writer.Key("seconds");
  writer.Number(totals.seconds);
  writer.Key("bytes_per_second");
  writer.Number(RateOf(totals.size_bytes, totals.seconds));
  writer.EndObject();
  return std::move(writer).Take();
}

void PrintVerified(const std::vector<VerifiedStore>& stores, const std::string& place,
                   Console& console) {
  if (stores.empty()) {
    console.out << "no stores in " << Printable(place) << "\n";
    return;
  }
  Table table({{"STORE"},
               {"READ", Align::kRight},
               {"TIME", Align::kRight},
               {"RATE", Align::kRight},
               {"RESULT"}});
  for (const VerifiedStore& store : stores) {
    table.AddRow({store.label, HumanBytes(store.size_bytes), HumanSeconds(store.seconds),
                  HumanRate(RateOf(store.size_bytes, store.seconds)), ResultCell(store)});
  }
  table.Print(console);
  for (const VerifiedStore& store : stores) {
    for (const v1::VerifyProblem& problem : store.problems) {
      console.out << Printable(absl::StrCat(problem.path(), ": offset ", problem.offset(), ": ",
                                            problem.message()))
                  << "\n";
    }
    if (!store.skipped.empty() || !store.error.ok()) {
      console.out << Printable(absl::StrCat(store.label, ": ",
                                            store.skipped.empty()
                                                ? store.error.message()
                                                : absl::string_view(store.skipped)))
                  << "\n";
    }
  }
}

ExitCode ExitCodeOfVerified(const std::vector<VerifiedStore>& stores) {
  ExitCode code = ExitCode::kFine;
  for (const VerifiedStore& store : stores) {
    if (!store.problems.empty()) {
      return ExitCode::kCorruption;
    }
    if (!store.error.ok()) {
      code = ExitCode::kFailed;
    }
  }
  return code;
}

}  // namespace moment::cli
