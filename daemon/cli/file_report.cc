#include "daemon/cli/file_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/cli/commit_report.h"
#include "daemon/cli/json_writer.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/table.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

std::string Hex(uint64_t digest) { return absl::StrCat(absl::Hex(digest, absl::kZeroPad16)); }

// A daemon that answers for its own files does not read their headers.
bool HeaderWasRead(const store::BucketFileView& file) { return file.header_bytes != 0; }

void PrintHeaderTensors(const store::BucketFileView& file, Console& console) {
  Table table({{"TYPE"}, {"SHAPE"}, {"OFFSET", Align::kRight}, {"BYTES", Align::kRight}, {"NAME"}});
  for (const store::HeaderTensor& tensor : file.tensors) {
    table.AddRow({tensor.type, absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]"),
                  absl::StrCat(tensor.offset), absl::StrCat(tensor.length_bytes), tensor.name});
  }
  console.out << "\n";
  table.Print(console);
}

void WriteHeaderTensor(const store::HeaderTensor& tensor, JsonWriter& writer) {
  writer.BeginObject();
  writer.Key("name");
  writer.String(tensor.name);
  writer.Key("type");
  writer.String(tensor.type);
  writer.Key("shape");
  writer.BeginArray();
  for (const uint64_t extent : tensor.shape) {
    writer.Unsigned(extent);
  }
  writer.EndArray();
  writer.Key("offset");
  writer.Unsigned(tensor.offset);
  writer.Key("length_bytes");
  writer.Unsigned(tensor.length_bytes);
  writer.EndObject();
}

void WriteHeader(const store::BucketFileView& file, JsonWriter& writer) {
  writer.Key("header_bytes");
  if (!HeaderWasRead(file)) {
    writer.Null();
    writer.Key("tensors");
    writer.Null();
    return;
  }
  writer.Unsigned(file.header_bytes);
  writer.Key("tensors");
  writer.BeginArray();
  for (const store::HeaderTensor& tensor : file.tensors) {
    WriteHeaderTensor(tensor, writer);
  }
  writer.EndArray();
}

void WriteChecksums(const store::BucketFileView& file, JsonWriter& writer) {
  writer.Key("checksums");
  if (!file.has_checksums) {
    writer.Null();
    return;
  }
  writer.BeginObject();
  writer.Key("store_uuid");
  writer.String(file.store_uuid);
  writer.Key("bucket");
  writer.Unsigned(file.bucket);
  writer.Key("file");
  writer.Unsigned(file.file);
  writer.Key("written_by");
  writer.Unsigned(file.written_by);
  writer.Key("checksum_count");
  HeaderWasRead(file) ? writer.Unsigned(file.checksum_count) : writer.Null();
  writer.Key("digest");
  writer.String(Hex(file.checksums_digest));
  writer.EndObject();
}

void BeginDocument(JsonWriter& writer, const char* kind, const std::string& place,
                   const std::string& path, uint64_t size_bytes) {
  writer.BeginObject();
  writer.Key("schema_version");
  writer.Signed(kJsonSchemaVersion);
  writer.Key("kind");
  writer.String(kind);
  writer.Key("source");
  writer.String(place);
  writer.Key("path");
  writer.String(path);
  writer.Key("size_bytes");
  writer.Unsigned(size_bytes);
}

}  // namespace

void PrintBucketFile(const store::BucketFileView& file, bool tensors, Console& console) {
  Facts facts;
  facts.Add("bucket file", file.path, Colour::kBold);
  facts.Add("size", HumanBytes(file.size_bytes));
  facts.Add("member", file.member);
  facts.Add("bucket", absl::StrCat(file.number, " of its member"));
  if (HeaderWasRead(file)) {
    facts.Add("header", HumanBytes(file.header_bytes));
    facts.Add("tensors", absl::StrCat(file.tensors.size(), ", pads and checksums among them"));
  }
  if (file.has_checksums) {
    facts.Add("store uuid", file.store_uuid);
    facts.Add("bucket of store", absl::StrCat(file.bucket));
    facts.Add("file number", absl::StrCat(file.file));
    facts.Add("written by", absl::StrCat("id ", file.written_by));
    facts.Add("checksums digest", Hex(file.checksums_digest));
  } else {
    facts.Add("checksums", "none: no commit has written this file");
  }
  facts.Print(console);
  if (tensors && HeaderWasRead(file)) {
    PrintHeaderTensors(file, console);
  }
}

std::string BucketFileDocument(const store::BucketFileView& file, const std::string& place) {
  JsonWriter writer;
  BeginDocument(writer, "bucket_file", place, file.path, file.size_bytes);
  writer.Key("member");
  writer.String(file.member);
  writer.Key("number");
  writer.Unsigned(file.number);
  WriteHeader(file, writer);
  WriteChecksums(file, writer);
  writer.EndObject();
  return std::move(writer).Take();
}

void PrintCommitFile(const store::CommitFileView& file, Console& console) {
  Facts facts;
  facts.Add("commit file", file.path, Colour::kBold);
  facts.Add("size", HumanBytes(file.size_bytes));
  for (int copy = 0; copy < 2; ++copy) {
    const bool valid = file.copy_valid[copy];
    const char* state = valid ? "valid" : (file.empty ? "empty" : "damaged");
    facts.Add(absl::StrCat("copy ", copy), state,
              valid || file.empty ? Colour::kNone : Colour::kRed);
  }
  facts.Print(console);
  if (file.copy_valid[0] || file.copy_valid[1]) {
    console.out << "\n";
    PrintCommit(file.record, nullptr, console);
  }
}

std::string CommitFileDocument(const store::CommitFileView& file, const std::string& place) {
  JsonWriter writer;
  BeginDocument(writer, "commit_file", place, file.path, file.size_bytes);
  writer.Key("empty");
  writer.Bool(file.empty);
  writer.Key("copies_valid");
  writer.BeginArray();
  writer.Bool(file.copy_valid[0]);
  writer.Bool(file.copy_valid[1]);
  writer.EndArray();
  writer.Key("record");
  if (file.copy_valid[0] || file.copy_valid[1]) {
    WriteMessage(writer, file.record);
  } else {
    writer.Null();
  }
  writer.EndObject();
  return std::move(writer).Take();
}

}  // namespace moment::cli
