#include "cuda/watched_importer.h"

#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

class Refusing : public device::MemoryImporter {
 public:
  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> OpenHandle(
      absl::string_view handle) override {
    return absl::UnavailableError(handle);
  }
  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> MapDescriptors(
      const std::vector<base::UniqueFd>&, uint64_t chunk_bytes) override {
    return absl::InvalidArgumentError(chunk_bytes == 7 ? "seven" : "other");
  }
};

TEST_CASE("WatchedImporter: what an import finds is seen first, and passed on", "[cuda]") {
  Refusing refusing;
  std::vector<absl::Status> seen;
  WatchedImporter importer(refusing, [&](const absl::Status& status) { seen.push_back(status); });
  CHECK(importer.OpenHandle("lost").status() == absl::UnavailableError("lost"));
  CHECK(importer.MapDescriptors({}, 7).status() == absl::InvalidArgumentError("seven"));
  CHECK(seen == std::vector<absl::Status>{absl::UnavailableError("lost"),
                                          absl::InvalidArgumentError("seven")});
}

}  // namespace
}  // namespace moment::cuda
