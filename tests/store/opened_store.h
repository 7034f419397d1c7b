#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/store/names.h"
#include "tests/store/store_driver.h"

namespace moment::store {

// One store on a simulated disk of its own.
struct OpenedStore {
  explicit OpenedStore(const io::SimulatedFaults& faults = {}) : disk(faults) {
    environment = SimulatedEnvironment(disk);
  }

  // Opens it, again if it is open.
  absl::Status Open(const OpenParameters& parameters = SmallStore()) {
    store.reset();
    absl::StatusOr<std::unique_ptr<Store>> opened = Store::Open(environment, parameters);
    if (opened.ok()) {
      store = *std::move(opened);
    }
    return opened.status();
  }

  StoreDriver driver() { return StoreDriver(disk.engine(), *store); }

  // A path below the store's directory.
  std::string PathOf(const std::string& name) const {
    return Join(StoreDirectory(kTestStateDirectory, SmallStore().name), name);
  }
  // The file that the newest commit names for a bucket.
  std::string NewestFile(size_t bucket) const {
    return store->newest()->images[bucket]->file().path();
  }

  void FlipBit(const std::string& path, uint64_t offset) {
    disk.Corrupt(path, [&](std::vector<std::byte>& bytes) { bytes.at(offset) ^= std::byte{1}; });
  }
  void Truncate(const std::string& path, uint64_t length) {
    disk.Corrupt(path, [&](std::vector<std::byte>& bytes) { bytes.resize(length); });
  }
  std::vector<std::byte> Content(const std::string& path) {
    std::vector<std::byte> content;
    disk.Corrupt(path, [&](std::vector<std::byte>& bytes) { content = bytes; });
    return content;
  }
  void Replace(const std::string& path, const std::vector<std::byte>& content) {
    disk.Corrupt(path, [&](std::vector<std::byte>& bytes) { bytes = content; });
  }

  io::SimulatedDisk disk;
  Environment environment;
  std::unique_ptr<Store> store;
};

}  // namespace moment::store
