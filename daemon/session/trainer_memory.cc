#include "daemon/session/trainer_memory.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "daemon/base/errors.h"
#include "daemon/session/tensor_set.h"

namespace moment::session {
namespace {

std::string TransportOf(const v1::Region& region) {
  switch (region.memory_case()) {
    case v1::Region::kCudaIpc:
      return "cuda_ipc";
    case v1::Region::kCudaVmm:
      return "cuda_vmm";
    default:
      return "ring";
  }
}

v1::RegionStatus DescribeRegion(const v1::Region& region) {
  v1::RegionStatus described;
  described.set_region(region.region());
  described.set_transport(TransportOf(region));
  described.set_length_bytes(region.length_bytes());
  return described;
}

absl::Status CheckTensor(const v1::TensorLocation& location, const v1::Layout& layout,
                         absl::string_view what) {
  const auto count = static_cast<uint64_t>(layout.tensors_size());
  return location.tensor() < count ? absl::OkStatus()
                                   : TensorOutOfRange(what, location.tensor(), count);
}

}  // namespace

absl::StatusOr<device::DataType> ToElementType(v1::DataType type, absl::string_view what) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT32:
      return device::DataType::kFloat32;
    case v1::DATA_TYPE_BFLOAT16:
      return device::DataType::kBFloat16;
    case v1::DATA_TYPE_FLOAT16:
      return device::DataType::kFloat16;
    default:
      return absl::InvalidArgumentError(absl::StrCat(what, " has type ", v1::DataType_Name(type),
                                                     "; it must be FLOAT32, BFLOAT16 or FLOAT16"));
  }
}

uint64_t ElementCount(const v1::Tensor& tensor) {
  uint64_t count = 1;
  for (const uint64_t extent : tensor.shape()) {
    count *= extent;
  }
  return count;
}

absl::Status TrainerMemory::AddRegions(const Imports::Regions& given, Regions& regions) const {
  for (const v1::Region& region : given) {
    const RegionMemory memory = {region.length_bytes(), imports_->Find(region)};
    if (!regions.try_emplace(region.region(), memory).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("region ", region.region(), " is given twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> TrainerMemory::Locate(const v1::TensorLocation& location,
                                                 const v1::Layout& layout, const Regions& regions,
                                                 uint64_t element_bytes, absl::string_view what) {
  const auto found = regions.find(location.region());
  if (found == regions.end()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " of tensor ", location.tensor(),
                                                   " lies in region ", location.region(),
                                                   ", which was not given"));
  }
  const RegionMemory& region = found->second;
  const v1::Tensor& tensor = layout.tensors(static_cast<int>(location.tensor()));
  const uint64_t needed = ElementCount(tensor) * element_bytes;
  if (location.offset_bytes() > region.length_bytes ||
      needed > region.length_bytes - location.offset_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of tensor ", location.tensor(), " (", tensor.name(), ") needs ",
                     needed, " bytes at offset ", location.offset_bytes(), " of region ",
                     location.region(), ", which has ", region.length_bytes));
  }
  if (region.data == nullptr) {
    return nullptr;
  }
  std::byte* const address = region.data + location.offset_bytes();
  if (reinterpret_cast<uint64_t>(address) % element_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " of tensor ", location.tensor(), " (", tensor.name(),
        ") lies at an address that is no multiple of its elements of ", element_bytes, " bytes"));
  }
  return address;
}

absl::StatusOr<TrainerMemory> TrainerMemory::Create(const v1::AttachRequest& request,
                                                    const v1::Layout& layout,
                                                    uint64_t previous_generation, Imports& imports,
                                                    const Imports::TakeDescriptor& take) {
  if (request.generation() <= previous_generation) {
    return absl::FailedPreconditionError(absl::StrCat("Attach of generation ", request.generation(),
                                                      " after generation ", previous_generation,
                                                      ": it must grow"));
  }
  TrainerMemory memory;
  memory.imports_ = &imports;
  memory.generation_ = request.generation();
  const absl::Status held = imports.Hold(Imports::Holder::kAttachment, request.regions(), take);
  imports.Release(Imports::Holder::kStep);
  MOMENT_RETURN_IF_ERROR(held);
  MOMENT_RETURN_IF_ERROR(memory.AddRegions(request.regions(), memory.regions_));
  for (const v1::Region& region : request.regions()) {
    memory.described_.push_back(DescribeRegion(region));
  }
  const auto count = static_cast<size_t>(layout.tensors_size());
  memory.parameters_.resize(count);
  memory.gradients_.resize(count);
  for (const v1::Tensor& tensor : layout.tensors()) {
    MOMENT_ASSIGN_OR_RETURN(const device::DataType type,
                            ToElementType(tensor.parameter_type(), tensor.name()));
    memory.gradient_types_.push_back(type);
  }
  for (const v1::GradientType& typed : request.gradient_types()) {
    MOMENT_ASSIGN_OR_RETURN(const device::DataType type, ToElementType(typed.type(), "a gradient"));
    MOMENT_RETURN_IF_ERROR(ForEachTensor(typed.tensors(), memory.gradient_types_.size(),
                                         "gradient_types", [&](uint32_t tensor) {
                                           memory.gradient_types_[tensor] = type;
                                           return absl::OkStatus();
                                         }));
  }
  for (const v1::TensorLocation& location : request.parameters()) {
    MOMENT_RETURN_IF_ERROR(CheckTensor(location, layout, "parameters"));
    const v1::Tensor& tensor = layout.tensors(static_cast<int>(location.tensor()));
    MOMENT_ASSIGN_OR_RETURN(memory.parameters_[location.tensor()],
                            Locate(location, layout, memory.regions_,
                                   store::SizeBytes(tensor.parameter_type()), "parameter"));
  }
  for (const v1::TensorLocation& location : request.gradients()) {
    MOMENT_RETURN_IF_ERROR(CheckTensor(location, layout, "gradients"));
    MOMENT_ASSIGN_OR_RETURN(
        memory.gradients_[location.tensor()],
        Locate(location, layout, memory.regions_,
               device::SizeBytes(memory.gradient_types_[location.tensor()]), "gradient"));
  }
  return memory;
}

absl::StatusOr<std::vector<const std::byte*>> TrainerMemory::LocateGradients(
    const v1::StepRequest& request, const v1::Layout& layout,
    const Imports::TakeDescriptor& take) const {
  MOMENT_RETURN_IF_ERROR(imports_->Hold(Imports::Holder::kStep, request.regions(), take));
  Regions regions = regions_;
  MOMENT_RETURN_IF_ERROR(AddRegions(request.regions(), regions));
  std::vector<const std::byte*> located(gradients_.begin(), gradients_.end());
  for (const v1::TensorLocation& location : request.gradients()) {
    MOMENT_RETURN_IF_ERROR(CheckTensor(location, layout, "gradients"));
    MOMENT_ASSIGN_OR_RETURN(
        located[location.tensor()],
        Locate(location, layout, regions, device::SizeBytes(gradient_types_[location.tensor()]),
               "gradient"));
  }
  return located;
}

std::string TrainerMemory::transport() const {
  std::set<std::string> names;
  for (const v1::RegionStatus& region : described_) {
    names.insert(region.transport());
  }
  if (described_.empty() ||
      std::find(parameters_.begin(), parameters_.end(), nullptr) != parameters_.end()) {
    names.insert("ring");
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace moment::session
