#include "daemon/session/imports.h"

#include "daemon/session/trainer_memory.h"
#include "tests/support/catch.h"

namespace moment::session {
namespace {

using Holder = Imports::Holder;
constexpr uint64_t kAllocation = 4096;
constexpr char kGpu[] = "GPU-1";

// Allocations in host memory, opened by the first byte of their handle.
class FakeImporter : public device::MemoryImporter {
 public:
  class Memory : public device::ImportedMemory {
   public:
    explicit Memory(FakeImporter* owner, uint64_t length) : owner_(owner), bytes_(length) {
      ++owner_->open;
    }
    ~Memory() override { --owner_->open; }
    std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
    uint64_t length_bytes() const override { return bytes_.size(); }

   private:
    FakeImporter* owner_;
    std::vector<std::byte> bytes_;
  };

  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> OpenHandle(
      absl::string_view handle) override {
    if (handle == "bad") {
      return absl::InvalidArgumentError("a handle of nothing");
    }
    open_at_last_call = open;
    ++opened;
    return std::make_unique<Memory>(this, kAllocation);
  }
  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> MapDescriptors(
      const std::vector<base::UniqueFd>& chunks, uint64_t chunk_bytes) override {
    ++opened;
    return std::make_unique<Memory>(this, chunks.size() * chunk_bytes);
  }

  int open = 0;
  int opened = 0;
  int open_at_last_call = 0;
};

void Add(Imports::Regions& regions, const std::string& handle, uint64_t buffer_id,
         uint64_t length = kAllocation, const std::string& uuid = kGpu) {
  v1::Region& region = *regions.Add();
  region.set_region(static_cast<uint32_t>(regions.size()));
  region.set_length_bytes(length);
  region.set_buffer_id(buffer_id);
  region.mutable_cuda_ipc()->set_handle(handle);
  region.mutable_cuda_ipc()->set_device_uuid(uuid);
}

Imports::Regions One(const std::string& handle, uint64_t buffer_id, uint64_t length = kAllocation,
                     const std::string& uuid = kGpu) {
  Imports::Regions regions;
  Add(regions, handle, buffer_id, length, uuid);
  return regions;
}

absl::StatusOr<base::UniqueFd> NoDescriptor(uint32_t number) {
  return absl::InvalidArgumentError(std::to_string(number) + " was not offered");
}

absl::StatusOr<base::UniqueFd> AnyDescriptor(uint32_t) { return base::UniqueFd(); }

v1::Layout LayoutOf(uint64_t elements) {
  v1::Layout layout;
  v1::Tensor& tensor = *layout.add_tensors();
  tensor.set_name("w");
  tensor.add_shape(elements);
  tensor.set_parameter_type(v1::DATA_TYPE_FLOAT32);
  return layout;
}

v1::AttachRequest AttachOf(uint64_t offset) {
  v1::AttachRequest request;
  request.set_generation(1);
  Add(*request.mutable_regions(), "a", 1);
  v1::TensorLocation& location = *request.add_parameters();
  location.set_region(1);
  location.set_offset_bytes(offset);
  return request;
}

}  // namespace

TEST_CASE("Imports: an allocation is opened once, whoever names it", "[session]") {
  FakeImporter importer;
  Imports imports(&importer, kGpu);
  REQUIRE(imports.Hold(Holder::kAttachment, One("a", 1), NoDescriptor).ok());
  REQUIRE(imports.Hold(Holder::kStep, One("a", 1), NoDescriptor).ok());
  REQUIRE(imports.Hold(Holder::kStep, One("a", 1), NoDescriptor).ok());
  CHECK(importer.opened == 1);
  imports.Release(Holder::kAttachment);
  CHECK(importer.open == 1);
  imports.Release(Holder::kStep);
  CHECK(importer.open == 0);
}

TEST_CASE("Imports: another buffer id closes the old import before the new one opens",
          "[session]") {
  FakeImporter importer;
  Imports imports(&importer, kGpu);
  REQUIRE(imports.Hold(Holder::kStep, One("a", 1), NoDescriptor).ok());
  REQUIRE(imports.Hold(Holder::kStep, One("a", 2), NoDescriptor).ok());
  CHECK(importer.opened == 2);
  CHECK(importer.open_at_last_call == 0);
  CHECK(imports.count() == 1);
}

TEST_CASE("Imports: bad regions are refused by name and leave nothing open", "[session]") {
  FakeImporter importer;
  Imports imports(&importer, kGpu);
  const auto refused = [&](const Imports::Regions& regions) {
    const absl::Status status = imports.Hold(Holder::kAttachment, regions, NoDescriptor);
    CHECK(status.message().find("region 1") != absl::string_view::npos);
    CHECK(importer.open == 0);
    return status.code();
  };
  CHECK(refused(One("bad", 1)) == absl::StatusCode::kInvalidArgument);
  CHECK(refused(One("a", 1, kAllocation + 1)) == absl::StatusCode::kInvalidArgument);
  CHECK(refused(One("a", 1, kAllocation, "GPU-2")) == absl::StatusCode::kInvalidArgument);
  Imports::Regions shifted = One("a", 1);
  shifted[0].mutable_cuda_ipc()->set_offset_bytes(~uint64_t{0});
  CHECK(refused(shifted) == absl::StatusCode::kInvalidArgument);
  Imports::Regions unknown;
  unknown.Add()->mutable_cuda_vmm()->add_descriptors(7);
  unknown[0].set_region(1);
  unknown[0].mutable_cuda_vmm()->set_device_uuid(kGpu);
  CHECK(refused(unknown) == absl::StatusCode::kInvalidArgument);
  Imports::Regions silent;
  silent.Add()->set_region(1);
  CHECK(refused(silent) == absl::StatusCode::kInvalidArgument);
  Imports on_host(nullptr, "host");
  CHECK(absl::IsUnimplemented(on_host.Hold(Holder::kAttachment, One("a", 1), NoDescriptor)));
}

TEST_CASE("Imports: descriptors are taken once, and their region is kept", "[session]") {
  FakeImporter importer;
  Imports imports(&importer, kGpu);
  Imports::Regions regions;
  v1::Region& region = *regions.Add();
  region.set_length_bytes(8192);
  region.mutable_cuda_vmm()->add_descriptors(0);
  region.mutable_cuda_vmm()->add_descriptors(1);
  region.mutable_cuda_vmm()->set_chunk_bytes(4096);
  region.mutable_cuda_vmm()->set_device_uuid(kGpu);
  REQUIRE(imports.Hold(Holder::kStep, regions, AnyDescriptor).ok());
  CHECK(imports.Find(region) != nullptr);
  REQUIRE(imports.Hold(Holder::kStep, regions, NoDescriptor).ok());
  CHECK(importer.opened == 1);
}

TEST_CASE("TrainerMemory: a tensor beyond its region, or at an odd address, is refused by name",
          "[session]") {
  FakeImporter importer;
  Imports imports(&importer, kGpu);
  const v1::Layout layout = LayoutOf(1000);
  const auto create = [&](uint64_t offset) {
    return TrainerMemory::Create(AttachOf(offset), layout, 0, imports, NoDescriptor).status();
  };
  CHECK(create(96).ok());
  for (const uint64_t offset : {uint64_t{97}, uint64_t{2}, ~uint64_t{0}}) {
    const absl::Status status = create(offset);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message().find("(w)") != absl::string_view::npos);
  }
}

TEST_CASE("TrainerMemory: parameters and gradients are found where their regions are open",
          "[session]") {
  FakeImporter importer;
  Imports imports(&importer, kGpu);
  const v1::Layout layout = LayoutOf(1000);
  const auto memory = TrainerMemory::Create(AttachOf(8), layout, 0, imports, NoDescriptor);
  REQUIRE(memory.ok());
  CHECK(memory->transport() == "cuda_ipc");
  CHECK(memory->parameters()[0] == imports.Find(AttachOf(8).regions(0)) + 8);
  v1::StepRequest step;
  CHECK((*memory->LocateGradients(step, layout, NoDescriptor))[0] == nullptr);
  Add(*step.mutable_regions(), "b", 5);
  step.mutable_regions(0)->set_region(2);
  v1::TensorLocation& location = *step.add_gradients();
  location.set_region(2);
  location.set_offset_bytes(4);
  // Located first: it opens the region that is looked for.
  const auto located = memory->LocateGradients(step, layout, NoDescriptor);
  REQUIRE(located.ok());
  CHECK((*located)[0] == imports.Find(step.regions(0)) + 4);
  CHECK(imports.count() == 2);
}

}  // namespace moment::session
