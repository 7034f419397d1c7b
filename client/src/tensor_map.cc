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
  std::vector<uint32_t> wanted;
  for (size_t i = 0; i < marked.size(); ++i) {
    if (marked[i]) {
      wanted.push_back(to_store_[i]);
    }
  }
  return SetOf(std::move(wanted));
}

v1::TensorSet TensorMap::SetOf(std::vector<uint32_t> store_indices) {
  std::sort(store_indices.begin(), store_indices.end());
  v1::TensorSet set;
  for (const uint32_t index : store_indices) {
    v1::TensorRun* last = set.runs_size() == 0 ? nullptr : set.mutable_runs(set.runs_size() - 1);
    if (last != nullptr && last->first() + last->count() == index) {
      last->set_count(last->count() + 1);
    } else {
      v1::TensorRun* run = set.add_runs();
      run->set_first(index);
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

absl::optional<uint32_t> TensorMap::FromStore(uint32_t store_index) const {
  if (store_index >= store_size() || from_store_[store_index] == kNobody) {
    return absl::nullopt;
  }
  return from_store_[store_index];
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
