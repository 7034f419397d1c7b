#include <stdlib.h>

#include <filesystem>

#include "daemon/base/worker_pool.h"
#include "daemon/store/inspect.h"
#include "tests/store/store_driver.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

// A directory of the real file system that is removed at the end.
struct RealDirectory {
  RealDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moment_storeXXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~RealDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

struct RealStore {
  RealStore() {
    auto created = io::CreateEngine({.kind = io::EngineKind::kThreads});
    REQUIRE(created.ok());
    engine = std::move(created->engine);
    const auto probe = io::ProbeDirectory(directory.path);
    REQUIRE(probe.ok());
    environment.files = files.get();
    environment.engine = engine.get();
    environment.direct_io = probe->direct_io;
    environment.state_directory = directory.path;
  }
  absl::StatusOr<std::unique_ptr<Store>> Open() { return Store::Open(environment, SmallStore()); }

  RealDirectory directory;
  std::unique_ptr<io::FileSystem> files = io::CreatePosixFileSystem();
  std::unique_ptr<io::IoEngine> engine;
  Environment environment;
};

TEST_CASE("Store: it steps, rolls back and opens again on a real file system", "[store]") {
  RealStore real;
  auto store = real.Open();
  REQUIRE(store.ok());
  const auto expected = StoreDriver(*real.engine, **store).RefreshAndStep(6);
  REQUIRE(expected.ok());
  store->reset();
  store = real.Open();
  REQUIRE(store.ok());
  CHECK((*store)->warnings().empty());
  CHECK(CompareState(*real.engine, *(*store)->newest(), *expected) == "");
  REQUIRE((*store)->Rollback(5).ok());
  store->reset();
  store = real.Open();
  REQUIRE(store.ok());
  CHECK((*store)->newest()->sequence == 5);
  base::WorkerPool workers(2);
  const auto problems = VerifyStore(*real.files, *real.engine, workers, (*store)->directory());
  REQUIRE(problems.ok());
  CHECK(problems->empty());
}

TEST_CASE("Store: its files have the modes they were asked for, and reserved blocks", "[store]") {
  RealStore real;
  real.environment.file_permissions = 0600;
  real.environment.directory_permissions = 0700;
  auto store = real.Open();
  REQUIRE(store.ok());
  uint64_t allocated = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator((*store)->directory())) {
    const auto info = real.files->Stat(entry.path().string());
    REQUIRE(info.ok());
    CHECK((info->permissions & 0777) == (info->directory ? 0700U : 0600U));
    allocated += info->directory ? 0 : info->allocated_bytes;
  }
  CHECK(allocated >= (*store)->reserved_bytes());
}

TEST_CASE("Store: records grow on a real file system", "[store]") {
  RealStore real;
  auto store = real.Open();
  REQUIRE(store.ok());
  const auto expected = StoreDriver(*real.engine, **store).RefreshAndStep(4);
  REQUIRE(expected.ok());
  store->reset();
  OpenParameters larger = SmallStore();
  larger.blob_limit_bytes = 200'000;
  store = Store::Open(real.environment, larger);
  REQUIRE(store.ok());
  CHECK(CompareState(*real.engine, *(*store)->newest(), *expected) == "");
  CHECK((*store)->live().size() == 3);
}

}  // namespace
}  // namespace moment::store
