#include "client/src/tensor_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moment::client {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

}  // namespace

uint64_t SizeBytes(moment_type type) {
  return type == MOMENT_TYPE_FLOAT32 || type == MOMENT_TYPE_DEFAULT ? 4 : 2;
}

TensorMap::TensorMap(std::vector<Tensor> tensors, std::vector<uint32_t> to_store)
    : tensors_(std::move(tensors)), to_store_(std::move(to_store)) {
  const auto highest = std::max_element(to_store_.begin(), to_store_.end());
  from_store_.assign(highest == to_store_.end() ? 0 : size_t{*highest} + 1, kNobody);
  for (size_t i = 0; i < to_store_.size(); ++i) {
    from_store_[to_store_[i]] = static_cast<uint32_t>(i);
  }
}

absl::StatusOr<std::vector<bool>> TensorMap::Mark(absl::Span<const moment_run> runs,
                                                  absl::string_view what) const {
  std::vector<bool> marked(size(), false);
  for (const moment_run& run : runs) {
    if (run.first > size() || run.count > size() - run.first) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": tensors ", run.first, " + ", run.count, " of a store of ", size()));
    }
    std::fill_n(marked.begin() + run.first, run.count, true);
  }
  return marked;
}

v1::TensorSet TensorMap::ToStore(const std::vector<bool>& marked) const {
  std::vector<bool> wanted(store_size(), false);
  for (size_t i = 0; i < marked.size(); ++i) {
    if (marked[i]) {
      wanted[to_store_[i]] = true;
    }
  }
  v1::TensorSet set;
  v1::TensorRun* run = nullptr;
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) {
      run = nullptr;
    } else if (run != nullptr) {
      run->set_count(run->count() + 1);
    } else {
      run = set.add_runs();
      run->set_first(i);
      run->set_count(1);
    }
  }
  return set;
}

std::vector<uint32_t> TensorMap::IndicesFromStore(const v1::TensorSet& set) const {
  std::vector<uint32_t> indices;
  for (const v1::TensorRun& run : set.runs()) {
    const uint64_t end = std::min<uint64_t>(uint64_t{run.first()} + run.count(), store_size());
    for (uint64_t i = run.first(); i < end; ++i) {
      if (from_store_[i] != kNobody) {
        indices.push_back(from_store_[i]);
      }
    }
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

std::vector<moment_run> TensorMap::FromStore(const v1::TensorSet& set) const {
  std::vector<moment_run> runs;
  for (const uint32_t index : IndicesFromStore(set)) {
    if (!runs.empty() && runs.back().first + runs.back().count == index) {
      ++runs.back().count;
    } else {
      runs.push_back({index, 1});
    }
  }
  return runs;
}

}  // namespace moment::client
