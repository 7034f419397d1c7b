#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/cuda_driver.h"
#include "client/src/gpu_pointer.h"
#include "client/src/tensor_table.h"
#include "client/src/unique_fd.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::client {

// Buffers of tensors as the daemon is told of them. What no region names the ring serves.
struct SharedBuffers {
  google::protobuf::RepeatedPtrField<v1::Region> regions;
  google::protobuf::RepeatedPtrField<v1::TensorLocation> locations;

  // Changes when any buffer lies elsewhere, or in other physical memory.
  std::string Identity() const;
};

// Says how the trainer's buffers on a GPU reach the daemon, by what the driver says of each pointer
// at the time of the call: its allocation's legacy IPC handle, else its VMM allocations'
// descriptors, else the ring. Belongs to one connection: descriptors are offered to its session.
// Used by one thread at a time.
class GpuRegions {
 public:
  // As the daemon holds them: until the next description for the same holder was sent.
  enum class Holder : uint8_t { kAttachment, kStep };
  // Offers descriptors; returns the number of the first.
  using Offer = std::function<absl::StatusOr<uint32_t>(const std::vector<UniqueFd>& chunks)>;

  // `device`: what computes the store. On any other than the buffers' own GPU nothing is shared;
  // with MOMENTD_GPU_TRANSPORT=ring neither.
  GpuRegions(std::string device, Offer offer);
  ~GpuRegions();
  GpuRegions(const GpuRegions&) = delete;
  GpuRegions& operator=(const GpuRegions&) = delete;

  // By store index; buffers without data, and those on the host, are left out. Regions are numbered
  // from `first_region`. INVALID_ARGUMENT for a buffer that is longer than its allocation, or on
  // another GPU than the store's.
  absl::StatusOr<SharedBuffers> Describe(Holder holder, const std::vector<Buffer>& buffers,
                                         uint32_t first_region);
  // The daemon holds nothing more for it.
  void Release(Holder holder);

 private:
  struct Gpu;
  struct ChunkRun;
  struct Description;

  absl::StatusOr<const Gpu*> GpuOf(int ordinal);
  absl::Status DescribeHandle(uint32_t tensor, const Buffer& buffer, const GpuPointer& pointer,
                              Description& description);
  absl::StatusOr<bool> AddChunks(const Buffer& buffer, GpuPointer pointer,
                                 Description& description);
  absl::Status DescribeChunks(Holder holder, Description& description);
  absl::StatusOr<const ChunkRun*> ShareRun(Holder holder, ChunkRun wanted);
  absl::Status OfferRun(ChunkRun& run);
  void Drop(ChunkRun& run);
  void DropUnused();

  const std::string device_;
  const Offer offer_;
  const CudaDriver* driver_ = nullptr;
  std::map<int, std::unique_ptr<Gpu>> gpus_;
  // Runs that the daemon has; the allocations are retained, so that their handles name nothing
  // else.
  std::vector<std::unique_ptr<ChunkRun>> runs_;
};

// The GPU of each buffer, by the driver; on the host where there is none.
void FindGpus(std::vector<Buffer>& buffers);

}  // namespace moment::client
