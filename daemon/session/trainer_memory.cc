#include "daemon/session/trainer_memory.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/base/errors.h"
#include "daemon/session/tensor_set.h"

namespace moment::session {
namespace {

absl::StatusOr<std::string> TransportOf(const v1::Region& region) {
  switch (region.memory_case()) {
    case v1::Region::kRing:
      return std::string("ring");
    case v1::Region::kCudaIpc:
    case v1::Region::kCudaVmm:
      return absl::UnimplementedError(absl::StrCat(
          "region ", region.region(),
          " is GPU memory, which the host device cannot import: serve it by the ring"));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("region ", region.region(), " does not say how it is reached"));
  }
}

// Adds regions to `lengths` and, if asked, their transports.
template <typename Lengths>
absl::Status AddRegions(const google::protobuf::RepeatedPtrField<v1::Region>& regions,
                        Lengths& lengths, std::vector<std::string>* transports) {
  for (const v1::Region& region : regions) {
    MOMENT_ASSIGN_OR_RETURN(std::string transport, TransportOf(region));
    if (!lengths.try_emplace(region.region(), region.length_bytes()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("region ", region.region(), " is given twice"));
    }
    if (transports != nullptr) {
      transports->push_back(std::move(transport));
    }
  }
  return absl::OkStatus();
}

template <typename Lengths>
absl::Status CheckLocation(const v1::TensorLocation& location, const v1::Layout& layout,
                           const Lengths& lengths, uint64_t element_bytes, absl::string_view what) {
  const auto found = lengths.find(location.region());
  if (found == lengths.end()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " of tensor ", location.tensor(),
                                                   " lies in region ", location.region(),
                                                   ", which was not given"));
  }
  const v1::Tensor& tensor = layout.tensors(static_cast<int>(location.tensor()));
  const uint64_t needed = ElementCount(tensor) * element_bytes;
  if (location.offset_bytes() > found->second || needed > found->second - location.offset_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of tensor ", location.tensor(), " (", tensor.name(), ") needs ",
                     needed, " bytes at offset ", location.offset_bytes(), " of region ",
                     location.region(), ", which has ", found->second));
  }
  return absl::OkStatus();
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

absl::StatusOr<TrainerMemory> TrainerMemory::Create(const v1::AttachRequest& request,
                                                    const v1::Layout& layout,
                                                    uint64_t previous_generation) {
  if (request.generation() <= previous_generation) {
    return absl::FailedPreconditionError(absl::StrCat("Attach of generation ", request.generation(),
                                                      " after generation ", previous_generation,
                                                      ": it must grow"));
  }
  TrainerMemory memory;
  memory.generation_ = request.generation();
  MOMENT_RETURN_IF_ERROR(AddRegions(request.regions(), memory.regions_, &memory.transports_));
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
    MOMENT_RETURN_IF_ERROR(CheckLocation(location, layout, memory.regions_,
                                         store::SizeBytes(tensor.parameter_type()), "parameter"));
  }
  for (const v1::TensorLocation& location : request.gradients()) {
    MOMENT_RETURN_IF_ERROR(CheckTensor(location, layout, "gradients"));
    MOMENT_RETURN_IF_ERROR(
        CheckLocation(location, layout, memory.regions_,
                      device::SizeBytes(memory.gradient_types_[location.tensor()]), "gradient"));
  }
  return memory;
}

absl::Status TrainerMemory::CheckGradients(const v1::StepRequest& request,
                                           const v1::Layout& layout) const {
  Regions regions = regions_;
  MOMENT_RETURN_IF_ERROR(AddRegions(request.regions(), regions, nullptr));
  for (const v1::TensorLocation& location : request.gradients()) {
    MOMENT_RETURN_IF_ERROR(CheckTensor(location, layout, "gradients"));
    MOMENT_RETURN_IF_ERROR(CheckLocation(location, layout, regions,
                                         device::SizeBytes(gradient_types_[location.tensor()]),
                                         "gradient"));
  }
  return absl::OkStatus();
}

}  // namespace moment::session
