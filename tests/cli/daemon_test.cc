// The program against a real momentd with a store open in it.
#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "moment/moment.h"
#include "tests/cli/program.h"
#include "tests/cli/scratch.h"
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

// A store of one tensor with live parameters, stepped through the client.
class Trainer {
 public:
  explicit Trainer(const std::string& socket) {
    const uint64_t shape[] = {kElements};
    moment_tensor tensor = {};
    tensor.name = "w";
    tensor.dimensions = 1;
    tensor.shape = shape;
    moment_open_options options = MOMENT_OPEN_OPTIONS_INIT;
    options.socket = socket.c_str();
    options.job = "train";
    options.resume = MOMENT_RESUME_AUTO;
    options.tensors = &tensor;
    options.tensor_count = 1;
    Check(moment_open(&options, &store_));
    void* parameters[] = {parameters_.data()};
    Check(moment_attach(store_, parameters, 1));
    Check(moment_refresh_all(store_, 0, 0, nullptr, 0, nullptr));
  }
  ~Trainer() {
    moment_close(store_);
    for (moment_pin* pin : pins_) {
      moment_pin_release(&pin);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void Step() {
    const moment_run run = {0, 1};
    const moment_group group = {.lr = 1e-3,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .weight_decay = 0.01,
                                .mode = MOMENT_MODE_ADAMW,
                                .no_bias_correction = 0,
                                .maximize = 0,
                                .gradient_scale = 1,
                                .runs = &run,
                                .run_count = 1};
    const void* gradients[] = {gradient_.data()};
    moment_step_options options = MOMENT_STEP_OPTIONS_INIT;
    options.groups = &group;
    options.group_count = 1;
    options.gradients = gradients;
    Check(moment_step(store_, &options, nullptr));
  }
  void Flush() { Check(moment_flush(store_, nullptr)); }
  // Its id; released with the session.
  std::string Pin() {
    moment_pin* pin = nullptr;
    Check(moment_pin_create(store_, &pin));
    moment_pin_info info = MOMENT_PIN_INFO_INIT;
    Check(moment_pin_get_info(pin, &info));
    pins_.push_back(pin);
    return info.id;
  }

 private:
  static constexpr uint64_t kElements = 300'000;

  static void Check(moment_status status) {
    INFO(moment_last_error());
    REQUIRE(status == MOMENT_OK);
  }

  moment_store* store_ = nullptr;
  std::vector<moment_pin*> pins_;
  std::vector<float> parameters_ = std::vector<float>(kElements, 1.0F);
  std::vector<float> gradient_ = std::vector<float>(kElements, 0.5F);
};

struct Fixture {
  Scratch scratch;
  std::string state = (scratch.path() / "state").string();
  std::string sockets = (scratch.path() / "run").string();
  Program daemon{Command()};

  std::vector<std::string> Command() const {
    fs::create_directories(state);
    return {MOMENTD_PATH, "--state-dir",   state,   "--socket-dir",
            sockets,      "--host-memory", "64MiB", "--allow-unknown-file-system"};
  }
  Fixture() {
    if (moment_ping((sockets + "/momentd.sock").c_str(), 60) != MOMENT_OK) {
      daemon.Signal(SIGKILL);
      FAIL("momentd did not come up: " << daemon.Wait().err);
    }
  }

  ProgramResult Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--socket-dir", sockets});
    return RunMomentctl(std::move(arguments));
  }
};

TEST_CASE_METHOD(Fixture, "momentd: status and list show an open store", "[cli]") {
  Trainer trainer(sockets + "/momentd.sock");
  trainer.Step();
  const ProgramResult status = Run({"status"});
  CHECK(status.exit_code == 0);
  CHECK_THAT(status.out, ContainsSubstring("train/model/0") && ContainsSubstring(state));
  const google::protobuf::Struct parsed = Parsed(Run({"status", "--json"}).out);
  CHECK(parsed.fields()
            .at("sessions")
            .list_value()
            .values(0)
            .struct_value()
            .fields()
            .at("sequence")
            .number_value() == 1);
  const ProgramResult list = Run({"list"});
  CHECK(list.exit_code == 0);
  CHECK_THAT(list.out, ContainsSubstring("train/model/0") && ContainsSubstring("open"));
}

TEST_CASE_METHOD(Fixture, "momentd: inspect by name, and by path through the daemon", "[cli]") {
  Trainer trainer(sockets + "/momentd.sock");
  trainer.Step();
  trainer.Flush();
  const ProgramResult by_name = Run({"inspect", "train/model/0", "--json"});
  REQUIRE(by_name.exit_code == 0);
  const google::protobuf::Struct parsed = Parsed(by_name.out);
  CHECK(parsed.fields()
            .at("commits")
            .list_value()
            .values(0)
            .struct_value()
            .fields()
            .at("sequence")
            .number_value() == 1);
  const std::string directory =
      parsed.fields().at("summary").struct_value().fields().at("directory").string_value();
  // No --socket-dir: the lock of the state directory says where its holder is.
  const ProgramResult by_path = RunMomentctl({"inspect", directory});
  CHECK(by_path.exit_code == 0);
  CHECK_THAT(by_path.out, ContainsSubstring("train/model/0"));
  CHECK_THAT(by_path.err, ContainsSubstring(sockets));
  const std::string file = parsed.fields()
                               .at("files")
                               .list_value()
                               .values(0)
                               .struct_value()
                               .fields()
                               .at("path")
                               .string_value();
  const ProgramResult of_file = RunMomentctl({"inspect", file, "--json"});
  CHECK(of_file.exit_code == 0);
  CHECK(Parsed(of_file.out).fields().at("path").string_value() == file);
  CHECK(RunMomentctl({"inspect", directory + "/commit.0"}).exit_code == 6);
}

TEST_CASE_METHOD(Fixture, "momentd: verify while a store is open, which then goes on", "[cli]") {
  Trainer trainer(sockets + "/momentd.sock");
  trainer.Step();
  const ProgramResult result = Run({"verify", "--json"});
  CHECK(result.exit_code == 0);
  CHECK(Parsed(result.out).fields().at("problem_count").number_value() == 0);
  CHECK(Parsed(result.out).fields().at("bytes").number_value() >= 300'000 * 12.0);
  trainer.Step();
}

TEST_CASE_METHOD(Fixture, "momentd: pins are shown, and dropped by the beginning of their id",
                 "[cli]") {
  Trainer trainer(sockets + "/momentd.sock");
  trainer.Step();
  const std::string pin = trainer.Pin();
  CHECK_THAT(Run({"status"}).out, ContainsSubstring(pin));
  CHECK_THAT(Run({"inspect", "train/model/0"}).out, ContainsSubstring(pin));
  const google::protobuf::Struct list = Parsed(Run({"list", "--json"}).out);
  const google::protobuf::Value& pins =
      list.fields().at("stores").list_value().values(0).struct_value().fields().at("pins");
  REQUIRE(pins.list_value().values_size() == 1);
  CHECK(pins.list_value().values(0).struct_value().fields().at("id").string_value() == pin);
  CHECK(Run({"drop", "train/model/0", "--pin", "zzz"}).exit_code == 4);
  const ProgramResult dropped = Run({"drop", "train/model/0", "--pin", pin.substr(0, 6)});
  CHECK(dropped.exit_code == 0);
  CHECK_THAT(dropped.out, ContainsSubstring("dropped pin " + pin));
  CHECK(Run({"drop", "train/model/0", "--pin", pin}).exit_code == 4);
  CHECK_THAT(Run({"status"}).out, !ContainsSubstring(pin));
  trainer.Step();
}

TEST_CASE_METHOD(Fixture, "momentd: pins of a killed daemon are read offline, dropped by the next",
                 "[cli]") {
  std::string pin;
  {
    Trainer trainer(sockets + "/momentd.sock");
    trainer.Step();
    pin = trainer.Pin();
    daemon.Signal(SIGKILL);
    daemon.Wait();
    const ProgramResult offline = RunMomentctl({"inspect", "train/model/0", "--state-dir", state});
    CHECK(offline.exit_code == 0);
    CHECK_THAT(offline.out, ContainsSubstring(pin));
    const std::string directory = state + "/jobs/train/model/rank00000";
    const ProgramResult refused = RunMomentctl({"drop", directory, "--pin", pin});
    CHECK(refused.exit_code == 6);
    CHECK_THAT(refused.err, ContainsSubstring("no daemon holds"));
    Program again{Command()};
    REQUIRE(moment_ping((sockets + "/momentd.sock").c_str(), 60) == MOMENT_OK);
    const ProgramResult dropped = Run({"drop", "train/model/0", "--pin", pin});
    CHECK(dropped.exit_code == 0);
    CHECK(!fs::exists(directory + "/pins/" + pin));
    again.Signal(SIGTERM);
    CHECK(again.Wait().exit_code == 0);
  }
}

TEST_CASE_METHOD(Fixture, "momentd: what it does not have is exit 4", "[cli]") {
  CHECK(Run({"inspect", "none/model/0"}).exit_code == 4);
  CHECK(Run({"verify", "none/model/0"}).exit_code == 4);
  CHECK(Run({"health", "--service", "none"}).exit_code == 4);
}

TEST_CASE_METHOD(Fixture, "momentd: health of each service", "[cli]") {
  for (const std::string& service :
       {std::string(), std::string("liveness"), std::string("readiness"), state}) {
    INFO(service);
    const ProgramResult result = Run({"health", "--service", service});
    CHECK(result.exit_code == 0);
    CHECK(result.out == "serving\n");
  }
}

TEST_CASE_METHOD(Fixture, "momentd: after it ended its directory is read offline", "[cli]") {
  {
    Trainer trainer(sockets + "/momentd.sock");
    trainer.Step();
  }
  daemon.Signal(SIGTERM);
  CHECK(daemon.Wait().exit_code == 0);
  CHECK(Run({"status"}).exit_code == 3);
  CHECK(RunMomentctl({"verify", state}).exit_code == 0);
  const ProgramResult inspected = RunMomentctl({"inspect", "train/model/0", "--state-dir", state});
  CHECK(inspected.exit_code == 0);
  CHECK(inspected.err.empty());
}

}  // namespace
}  // namespace moment::cli
