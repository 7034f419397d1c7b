#pragma once

#include <stdlib.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/include/moment/moment.hpp"
#include "tests/client/fake_daemon.h"
#include "tests/support/catch.h"

namespace moment::testing {

// A trainer of three fp32 tensors (the second of 3,000 elements, more than a slot holds; the third
// empty) beside a fake daemon.
class Trainer {
 public:
  Trainer() : directory_("/tmp/moment-client-XXXXXX") {
    REQUIRE(::mkdtemp(directory_.data()) != nullptr);
    Start();
    options.job = "job";
    options.socket = daemon->socket();
    options.tensors = {{"a", {2, 3}}, {"b", {3000}}, {"c", {0, 4}}};
    options.blob_limit_bytes = 100;
    options.retry_for_seconds = 20;
    for (const size_t elements : {size_t{6}, size_t{3000}, size_t{0}}) {
      parameters.emplace_back(elements, 1.0f);
      gradients.emplace_back(elements, 0.5f);
    }
  }
  ~Trainer() {
    store.reset();
    daemon.reset();
    const std::string command = "rm -r " + directory_;
    CHECK(::system(command.c_str()) == 0);
  }

  void Start() { daemon = std::make_unique<FakeDaemon>(directory_, &disk); }
  void Open(moment_resume resume = MOMENT_RESUME_ASK) {
    options.resume = resume;
    store = std::make_unique<Store>(options);
    store->Attach({parameters[0].data(), parameters[1].data(), nullptr});
  }
  void OpenAndFill() {
    Open();
    store->RefreshAll();
  }
  moment::Step MakeStep(const std::string& blob = "") {
    moment::Step step;
    step.groups.resize(1);
    step.groups[0].lr = 0.25;
    step.groups[0].tensors = {{0, 3}};
    step.gradients = {gradients[0].data(), gradients[1].data(), nullptr};
    step.blob = blob;
    return step;
  }
  moment_statistics Step(const std::string& blob = "") { return store->Run(MakeStep(blob)); }
  moment_status CodeOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return MOMENT_OK;
  }

  FakeDisk disk;
  std::unique_ptr<FakeDaemon> daemon;
  OpenOptions options;
  std::unique_ptr<Store> store;
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> gradients;

 private:
  std::string directory_;
};

// Adam's first step with constant gradients moves every parameter by about lr.
inline bool Near(const std::vector<float>& values, float expected) {
  for (const float value : values) {
    if (std::fabs(value - expected) > 1e-3f) {
      return false;
    }
  }
  return true;
}

}  // namespace moment::testing
