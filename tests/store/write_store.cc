// Makes a store with one step in a directory of the real file system, for readers in other
// languages: write_store <state directory>. Beside the store it leaves, for each bucket and
// segment, the bytes that the newest commit's file must hold, as <bucket>.<segment>.raw, and prints
// one line a bucket: <bucket> <path>.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/store/store_driver.h"

namespace moment::store {
namespace {

OpenParameters OddStore() {
  OpenParameters parameters = SmallStore();
  parameters.name.set_job("a job/with \xc3\xa4");
  parameters.members[0].mutable_segments()->set_exp_avg(v1::DATA_TYPE_FLOAT16);
  parameters.members[0].mutable_segments()->set_exp_avg_sq(v1::DATA_TYPE_BFLOAT16);
  parameters.tensors.push_back(MakeTensor("scalar", 1, {}));
  parameters.tensors.push_back(MakeTensor("quote\" back\\slash \n \xe2\x82\xac", 1, {2, 1, 3}));
  parameters.tensors.push_back(MakeTensor(std::string(1000, 'n'), 1, {1024}));
  return parameters;
}

absl::Status Run(const std::string& state_directory) {
  const std::unique_ptr<io::FileSystem> files = io::CreatePosixFileSystem();
  absl::StatusOr<io::CreatedEngine> engine = io::CreateEngine({.kind = io::EngineKind::kThreads});
  if (!engine.ok()) {
    return engine.status();
  }
  Environment environment;
  environment.files = files.get();
  environment.engine = engine->engine.get();
  environment.state_directory = state_directory;
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(environment, OddStore());
  if (!store.ok()) {
    return store.status();
  }
  const absl::StatusOr<ExpectedCommit> expected =
      StoreDriver(*environment.engine, **store).RefreshAndStep(1);
  if (!expected.ok()) {
    return expected.status();
  }
  const std::shared_ptr<const State> state = (*store)->newest();
  for (size_t bucket = 0; bucket < state->images.size(); ++bucket) {
    std::cout << bucket << " " << state->images[bucket]->file().path() << "\n";
    for (int segment = 0; segment < kSegmentCount; ++segment) {
      const std::vector<std::byte> bytes =
          SegmentContent(state->layout->buckets()[bucket], segment, expected->seeds[bucket], false);
      std::ofstream raw(
          absl::StrCat(state_directory, "/", bucket, ".", SegmentName(segment), ".raw"),
          std::ios::binary);
      raw.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace moment::store

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_store <state directory>\n";
    return 2;
  }
  const absl::Status status = moment::store::Run(argv[1]);
  if (!status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  return 0;
}
