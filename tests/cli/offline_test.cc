// The program itself on real stores of a state directory that no daemon owns.
#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "daemon/base/fd.h"
#include "tests/cli/fake_daemon.h"
#include "tests/cli/program.h"
#include "tests/cli/scratch.h"
#include "tests/cli/small_store.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

namespace fs = std::filesystem;
using test::ContainsSubstring;

google::protobuf::Struct Parsed(const std::string& document) {
  google::protobuf::Struct parsed;
  INFO(document);
  REQUIRE(google::protobuf::util::JsonStringToMessage(document, &parsed).ok());
  REQUIRE(parsed.fields().count("schema_version") == 1);
  return parsed;
}

v1::StoreName Name(const std::string& job) {
  v1::StoreName name;
  name.set_job(job);
  name.set_role("model");
  return name;
}

// One store, "train/model/0", at sequence 2.
struct Fixture {
  Scratch scratch;
  SmallState state{(scratch.path() / "state").string()};
  std::string store = state.MakeStore(Name("train"), 2);

  std::string state_directory() const { return state.state_directory(); }

  // A data file that the newest commit names.
  std::string NewestFile() const {
    const ProgramResult result = RunMomentctl({"inspect", store, "--json"});
    REQUIRE(result.exit_code == 0);
    const google::protobuf::Struct parsed = Parsed(result.out);
    const auto& commits = parsed.fields().at("commits").list_value();
    const double newest = commits.values(0).struct_value().fields().at("id").number_value();
    for (const auto& file : parsed.fields().at("files").list_value().values()) {
      for (const auto& id : file.struct_value().fields().at("commits").list_value().values()) {
        if (id.number_value() == newest) {
          return file.struct_value().fields().at("path").string_value();
        }
      }
    }
    FAIL("no file of the newest commit");
    return "";
  }
};

void FlipBit(const std::string& path, std::streamoff offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const char byte = static_cast<char>(file.get());
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 0x10));
  REQUIRE(file.good());
}

TEST_CASE_METHOD(Fixture, "list: the stores of a state directory", "[cli]") {
  const ProgramResult result = RunMomentctl({"list", "--state-dir", state_directory()});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("train/model/0") && ContainsSubstring("420.7 k"));
  CHECK(result.err.empty());
}

TEST_CASE_METHOD(Fixture, "list: one unreadable store does not hide the others", "[cli]") {
  const std::string other = state.MakeStore(Name("other"), 0);
  std::ofstream(other + "/store.json") << "{";
  const ProgramResult result = RunMomentctl({"list", "--state-dir", state_directory()});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("train/model/0") && ContainsSubstring("unreadable") &&
                             ContainsSubstring(other + "/store.json"));
  const ProgramResult json = RunMomentctl({"list", "--state-dir", state_directory(), "--json"});
  CHECK(Parsed(json.out).fields().at("stores").list_value().values_size() == 2);
}

TEST_CASE_METHOD(Fixture, "inspect: a state directory lists its stores", "[cli]") {
  const ProgramResult result = RunMomentctl({"inspect", state_directory(), "--json"});
  CHECK(result.exit_code == 0);
  const google::protobuf::Struct parsed = Parsed(result.out);
  CHECK(parsed.fields().at("kind").string_value() == "state_directory");
  CHECK(parsed.fields().at("stores").list_value().values_size() == 1);
}

TEST_CASE_METHOD(Fixture, "inspect: a store by directory and by name", "[cli]") {
  const ProgramResult by_directory = RunMomentctl({"inspect", store, "--tensors"});
  CHECK(by_directory.exit_code == 0);
  CHECK_THAT(by_directory.out,
             ContainsSubstring("train/model/0") && ContainsSubstring("torch-cpu") &&
                 ContainsSubstring("wte.weight") && ContainsSubstring("[600, 700]"));
  const ProgramResult by_name =
      RunMomentctl({"inspect", "train/model/0", "--state-dir", state_directory(), "--tensors"});
  CHECK(by_name.exit_code == 0);
  CHECK(by_name.out == by_directory.out);
  const google::protobuf::Struct parsed = Parsed(RunMomentctl({"inspect", store, "--json"}).out);
  CHECK(parsed.fields().at("kind").string_value() == "store");
  CHECK(parsed.fields()
            .at("commits")
            .list_value()
            .values(0)
            .struct_value()
            .fields()
            .at("sequence")
            .number_value() == 2);
}

TEST_CASE_METHOD(Fixture, "inspect: a bucket file", "[cli]") {
  const std::string file = NewestFile();
  const ProgramResult result = RunMomentctl({"inspect", file, "--tensors"});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring(file) && ContainsSubstring("opt0_0") &&
                             ContainsSubstring("__checksums__"));
  const google::protobuf::Struct parsed = Parsed(RunMomentctl({"inspect", file, "--json"}).out);
  CHECK(parsed.fields().at("kind").string_value() == "bucket_file");
  CHECK(parsed.fields().at("size_bytes").number_value() ==
        static_cast<double>(fs::file_size(file)));
  CHECK(parsed.fields().at("checksums").struct_value().fields().at("written_by").number_value() ==
        3);
}

TEST_CASE_METHOD(Fixture, "inspect: a commit by id and by file", "[cli]") {
  const ProgramResult by_id = RunMomentctl({"inspect", store, "--commit", "3"});
  CHECK(by_id.exit_code == 0);
  CHECK_THAT(by_id.out, ContainsSubstring("sequence") &&
                            ContainsSubstring("02020202020202020202020202020202"));
  int records = 0;
  for (int i = 0; i < 4; ++i) {
    const ProgramResult by_file =
        RunMomentctl({"inspect", absl::StrCat(store, "/commit.", i), "--json"});
    CHECK(by_file.exit_code == 0);
    const google::protobuf::Struct parsed = Parsed(by_file.out);
    CHECK(parsed.fields().at("kind").string_value() == "commit_file");
    records += parsed.fields().at("record").has_struct_value() ? 1 : 0;
  }
  CHECK(records == 3);  // the newest, and the two that its step kept
  CHECK(RunMomentctl({"inspect", store, "--commit", "99"}).exit_code == 4);
}

TEST_CASE_METHOD(Fixture, "inspect: a copy that lies elsewhere needs no lock", "[cli]") {
  const fs::path copy = scratch.path() / "copy";
  fs::copy(store, copy, fs::copy_options::recursive);
  CHECK(RunMomentctl({"inspect", copy.string()}).exit_code == 0);
  CHECK(RunMomentctl({"verify", copy.string()}).exit_code == 0);
}

TEST_CASE_METHOD(Fixture, "What is not there is exit 4", "[cli]") {
  const std::string directory = state_directory();
  CHECK(RunMomentctl({"inspect", directory + "/none"}).exit_code == 4);
  CHECK(RunMomentctl({"inspect", "none/model/0", "--state-dir", directory}).exit_code == 4);
  CHECK(RunMomentctl({"verify", "none/model/0", "--state-dir", directory}).exit_code == 4);
  CHECK(RunMomentctl({"list", "--state-dir", directory + "/none"}).exit_code == 4);
}

TEST_CASE_METHOD(Fixture, "What is none of ours is exit 2", "[cli]") {
  std::ofstream(scratch.path() / "notes.txt") << "x";
  CHECK(RunMomentctl({"inspect", (scratch.path() / "notes.txt").string()}).exit_code == 2);
  CHECK(RunMomentctl({"list", "--state-dir", scratch.path().string()}).exit_code == 2);
  CHECK(RunMomentctl({"verify", NewestFile()}).exit_code == 2);
}

TEST_CASE_METHOD(Fixture, "A bucket file that is none is exit 5, naming it", "[cli]") {
  const std::string path = scratch.path() / "bucket00000.1.safetensors";
  std::ofstream(path) << std::string(8192, 'x');
  const ProgramResult result = RunMomentctl({"inspect", path});
  CHECK(result.exit_code == 5);
  CHECK_THAT(result.err, ContainsSubstring(path));
}

TEST_CASE_METHOD(Fixture, "verify: an undamaged state directory is exit 0", "[cli]") {
  const ProgramResult result = RunMomentctl({"verify", state_directory()});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("train/model/0") && ContainsSubstring("ok"));
  const google::protobuf::Struct parsed =
      Parsed(RunMomentctl({"verify", state_directory(), "--json"}).out);
  CHECK(parsed.fields().at("problem_count").number_value() == 0);
  CHECK(parsed.fields().at("bytes").number_value() > 420'701 * 12.0);
}

TEST_CASE_METHOD(Fixture, "verify: finds a flipped bit and names file and offset", "[cli]") {
  const std::string file = NewestFile();
  const google::protobuf::Struct parsed = Parsed(RunMomentctl({"inspect", file, "--json"}).out);
  const auto& tensor = parsed.fields().at("tensors").list_value().values(0).struct_value();
  const double offset = tensor.fields().at("offset").number_value();
  FlipBit(file, static_cast<std::streamoff>(offset) + 17);
  const ProgramResult result = RunMomentctl({"verify", store});
  CHECK(result.exit_code == 5);
  CHECK_THAT(result.out,
             ContainsSubstring(absl::StrCat(file, ": offset ", static_cast<uint64_t>(offset))));
  const google::protobuf::Struct report = Parsed(RunMomentctl({"verify", store, "--json"}).out);
  CHECK(report.fields().at("problem_count").number_value() == 1);
}

TEST_CASE_METHOD(Fixture, "verify: finds a truncated file", "[cli]") {
  const std::string file = NewestFile();
  fs::resize_file(file, fs::file_size(file) - 4096);
  const ProgramResult result = RunMomentctl({"verify", state_directory()});
  CHECK(result.exit_code == 5);
  CHECK_THAT(result.out, ContainsSubstring(file));
}

TEST_CASE_METHOD(Fixture, "verify: finds an empty file", "[cli]") {
  const std::string file = NewestFile();
  fs::resize_file(file, 0);
  CHECK(RunMomentctl({"verify", state_directory()}).exit_code == 5);
}

TEST_CASE_METHOD(Fixture, "verify: finds a missing file", "[cli]") {
  const std::string file = NewestFile();
  fs::remove(file);
  const ProgramResult result = RunMomentctl({"verify", store});
  CHECK(result.exit_code == 5);
  CHECK_THAT(result.out + result.err, ContainsSubstring(file));
}

TEST_CASE_METHOD(Fixture, "verify: damage of one store does not hide the others", "[cli]") {
  const std::string other = state.MakeStore(Name("other"), 0);
  fs::remove(NewestFile());
  const ProgramResult result = RunMomentctl({"verify", state_directory()});
  CHECK(result.exit_code == 5);
  CHECK_THAT(result.out, ContainsSubstring("other/model/0") && ContainsSubstring("train/model/0"));
}

TEST_CASE_METHOD(Fixture, "A store whose first Open was cut is incomplete, not damaged", "[cli]") {
  const std::string other = state.MakeStore(Name("other"), 0);
  fs::remove(other + "/store.json");
  const ProgramResult list = RunMomentctl({"list", "--state-dir", state_directory()});
  CHECK(list.exit_code == 0);
  CHECK_THAT(list.out, ContainsSubstring("incomplete"));
  const ProgramResult verify = RunMomentctl({"verify", state_directory()});
  CHECK(verify.exit_code == 0);
  CHECK_THAT(verify.out, ContainsSubstring("skipped"));
  CHECK(RunMomentctl({"verify", other}).exit_code == 4);
}

TEST_CASE_METHOD(Fixture, "A damaged record is exit 5, naming its file", "[cli]") {
  const std::string path = store + "/commit.0";
  fs::resize_file(path, 100);
  const ProgramResult inspected = RunMomentctl({"inspect", store});
  CHECK(inspected.exit_code == 5);
  CHECK_THAT(inspected.err, ContainsSubstring(path));
  CHECK(RunMomentctl({"inspect", path}).exit_code == 5);
  CHECK(RunMomentctl({"verify", state_directory()}).exit_code == 5);
}

TEST_CASE_METHOD(Fixture, "verify: finds two files that were swapped", "[cli]") {
  const google::protobuf::Struct parsed = Parsed(RunMomentctl({"inspect", store, "--json"}).out);
  std::vector<std::string> files;
  for (const auto& file : parsed.fields().at("files").list_value().values()) {
    if (file.struct_value().fields().at("bucket").number_value() == 0) {
      files.push_back(file.struct_value().fields().at("path").string_value());
    }
  }
  REQUIRE(files.size() == 3);
  fs::rename(files[0], files[0] + ".away");
  fs::rename(files[1], files[0]);
  fs::rename(files[0] + ".away", files[1]);
  const ProgramResult result = RunMomentctl({"verify", store});
  CHECK(result.exit_code == 5);
  CHECK_THAT(result.out, ContainsSubstring(files[0]) && ContainsSubstring(files[1]));
}

TEST_CASE_METHOD(Fixture, "Names of any kind are shown on one line", "[cli]") {
  state.MakeStore(Name("a b/ü\n\x1b[2J" + std::string(900, 'n')), 0);
  const ProgramResult result = RunMomentctl({"list", "--state-dir", state_directory()});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("a b/ü\\x0a\\x1b[2J"));
  CHECK(std::count(result.out.begin(), result.out.end(), '\n') == 3);
}

TEST_CASE_METHOD(Fixture, "Results that find no room are a failure", "[cli]") {
  const ProgramResult result =
      RunMomentctl({"list", "--state-dir", state_directory(), "--json"}, "/dev/full");
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, ContainsSubstring("incomplete"));
}

// The lock of a daemon that writes.
base::UniqueFd LockAsDaemon(const std::string& state_directory,
                            const std::string& socket_directory) {
  base::UniqueFd fd(::open((state_directory + "/LOCK").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(fd.get(), LOCK_EX | LOCK_NB) == 0);
  const std::string text = absl::StrCat(::getpid(), "\n", socket_directory, "\n");
  REQUIRE(::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return fd;
}

TEST_CASE_METHOD(Fixture, "A directory that a daemon holds is read through that daemon", "[cli]") {
  const std::string sockets = scratch.path().string();
  FakeDaemon daemon(absl::StrCat("unix:", sockets, "/admin.sock"));
  REQUIRE(daemon.listening());
  v1::StoreSummary& here = *daemon.list.add_stores();
  *here.mutable_name() = Name("from the daemon");
  here.set_directory(state_directory() + "/jobs/j/model/rank00000");
  v1::StoreSummary& elsewhere = *daemon.list.add_stores();
  *elsewhere.mutable_name() = Name("on another drive");
  elsewhere.set_directory("/other/jobs/j/model/rank00000");
  const base::UniqueFd lock = LockAsDaemon(state_directory(), sockets);
  const ProgramResult result = RunMomentctl({"list", "--state-dir", state_directory()});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("from the daemon/model/0") &&
                             !ContainsSubstring("on another drive"));
  CHECK_THAT(result.err,
             ContainsSubstring(absl::StrCat("pid ", ::getpid())) && ContainsSubstring(sockets));
}

TEST_CASE_METHOD(Fixture, "A file of a daemon that may write it is exit 6", "[cli]") {
  const std::string sockets = scratch.path().string();
  const FakeDaemon daemon(absl::StrCat("unix:", sockets, "/admin.sock"));
  REQUIRE(daemon.listening());
  const base::UniqueFd lock = LockAsDaemon(state_directory(), sockets);
  const ProgramResult result = RunMomentctl({"inspect", store + "/commit.0"});
  CHECK(result.exit_code == 6);
  CHECK(result.out.empty());
}

TEST_CASE_METHOD(Fixture, "A holder that does not answer is exit 3, and nothing is read", "[cli]") {
  const base::UniqueFd lock = LockAsDaemon(state_directory(), scratch.path().string());
  for (const char* command : {"inspect", "verify"}) {
    const ProgramResult result = RunMomentctl({command, state_directory()});
    CHECK(result.exit_code == 3);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, ContainsSubstring("is locked by"));
  }
}

TEST_CASE_METHOD(Fixture, "The last writes of a holder that is gone are waited for", "[cli]") {
  base::UniqueFd lock(::open((state_directory() + "/LOCK").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  const ProgramResult refused = RunMomentctl({"verify", state_directory(), "--timeout", "0.1"});
  CHECK(refused.exit_code == 3);
  CHECK(refused.out.empty());
  Program waiting(MomentctlCommand({"verify", state_directory(), "--timeout", "60"}));
  lock.Reset();
  CHECK(waiting.Wait().exit_code == 0);
}

TEST_CASE_METHOD(Fixture, "Readers share the lock", "[cli]") {
  const base::UniqueFd lock(::open((state_directory() + "/LOCK").c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::flock(lock.get(), LOCK_SH | LOCK_NB) == 0);
  CHECK(RunMomentctl({"verify", state_directory()}).exit_code == 0);
}

TEST_CASE("Ctrl-C ends verify by its signal, with nothing on stdout", "[cli]") {
  const Scratch scratch;
  FakeDaemon daemon(absl::StrCat("unix:", scratch.path().string(), "/admin.sock"));
  REQUIRE(daemon.listening());
  daemon.verify_hangs = true;
  Program program(
      MomentctlCommand({"verify", "a/model/0", "--json", "--socket-dir", scratch.path().string()}));
  daemon.verify_arrived.WaitForNotification();
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  CHECK(result.signal == SIGINT);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, ContainsSubstring("interrupted"));
}

}  // namespace
}  // namespace moment::cli
