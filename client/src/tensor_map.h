#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/include/moment/moment.h"
#include "moment/v1/types.pb.h"

namespace moment::client {

// What the client knows of its tensors: the caller numbers them by the order of moment_open, the
// daemon by its store. Immutable.
class TensorMap {
 public:
  struct Tensor {
    uint64_t elements = 0;
    moment_type type = MOMENT_TYPE_FLOAT32;
  };

  TensorMap() = default;
  TensorMap(std::vector<Tensor> tensors, std::vector<uint32_t> to_store);

  size_t size() const { return tensors_.size(); }
  size_t store_size() const { return from_store_.size(); }  // highest store index in use, plus one
  const Tensor& tensor(size_t index) const { return tensors_[index]; }
  uint32_t to_store(size_t index) const { return to_store_[index]; }
  const std::vector<uint32_t>& to_store() const { return to_store_; }

  // Marks the caller's tensors in the runs. INVALID_ARGUMENT naming the run that does not fit.
  absl::StatusOr<std::vector<bool>> Mark(absl::Span<const moment_run> runs,
                                         absl::string_view what) const;
  // The marked tensors, by store index.
  v1::TensorSet ToStore(const std::vector<bool>& marked) const;
  // Store indices, each once, as a set.
  static v1::TensorSet SetOf(std::vector<uint32_t> store_indices);
  // The caller's tensors among the store's, as runs of the caller's numbers.
  std::vector<moment_run> FromStore(const v1::TensorSet& set) const;
  std::vector<uint32_t> IndicesFromStore(const v1::TensorSet& set) const;
  // nullopt for a tensor that is not the caller's.
  absl::optional<uint32_t> FromStore(uint32_t store_index) const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<uint32_t> to_store_;
  std::vector<uint32_t> from_store_;  // UINT32_MAX: not the caller's
};

uint64_t SizeBytes(moment_type type);

}  // namespace moment::client
