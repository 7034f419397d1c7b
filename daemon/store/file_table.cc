#include "daemon/store/file_table.h"

#include <algorithm>
#include <utility>

namespace moment::store {

void FileTable::Add(uint32_t bucket, FileState file) {
  absl::MutexLock lock(&mutex_);
  Bucket& target = buckets_[bucket];
  target.next_number = std::max(target.next_number, file.number + 1);
  target.entries.push_back({.state = std::move(file)});
}

void FileTable::Remove(uint32_t bucket, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  std::vector<Entry>& entries = buckets_[bucket].entries;
  std::erase_if(entries, [&](const Entry& entry) { return entry.state.number == number; });
}

std::shared_ptr<io::File> FileTable::Find(uint32_t bucket, uint32_t number) const {
  absl::MutexLock lock(&mutex_);
  const Entry* entry = FindEntry(bucket, number);
  return entry == nullptr ? nullptr : entry->state.file;
}

std::vector<FileTable::FileState> FileTable::Files(uint32_t bucket) const {
  absl::MutexLock lock(&mutex_);
  std::vector<FileState> files;
  for (const Entry& entry : buckets_[bucket].entries) {
    files.push_back(entry.state);
  }
  return files;
}

std::vector<FileTable::FileState> FileTable::Unused(uint32_t bucket) const {
  absl::MutexLock lock(&mutex_);
  std::vector<FileState> files;
  for (const Entry& entry : buckets_[bucket].entries) {
    if (entry.unused()) {
      files.push_back(entry.state);
    }
  }
  return files;
}

void FileTable::SetPinned(uint32_t bucket, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  if (Entry* entry = FindEntry(bucket, number); entry != nullptr) {
    entry->state.writable = false;
  }
}

std::vector<uint32_t> FileTable::SurplusOf(const Bucket& bucket) {
  uint32_t highest = 0;
  int writable = 0;
  for (const Entry& entry : bucket.entries) {
    highest = std::max(highest, entry.state.number);
    writable += entry.state.writable ? 1 : 0;
  }
  std::vector<uint32_t> numbers;
  for (const Entry& entry : bucket.entries) {
    const bool needed = entry.state.writable && writable <= kImages;
    if (entry.unused() && !needed && entry.state.number != highest) {
      numbers.push_back(entry.state.number);
      writable -= entry.state.writable ? 1 : 0;
    }
  }
  return numbers;
}

std::vector<FileTable::FileName> FileTable::TakeSurplus() {
  absl::MutexLock lock(&mutex_);
  std::vector<FileName> names;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<uint32_t> numbers = SurplusOf(buckets_[b]);
    for (const uint32_t number : numbers) {
      names.push_back({static_cast<uint32_t>(b), number});
    }
    std::erase_if(buckets_[b].entries, [&](const Entry& entry) {
      return std::find(numbers.begin(), numbers.end(), entry.state.number) != numbers.end();
    });
  }
  return names;
}

bool FileTable::HasSurplus() const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(buckets_.begin(), buckets_.end(),
                     [](const Bucket& bucket) { return !SurplusOf(bucket).empty(); });
}

uint32_t FileTable::ReserveNumber(uint32_t bucket) {
  absl::MutexLock lock(&mutex_);
  return buckets_[bucket].next_number++;
}

std::optional<FileTable::Lease> FileTable::Take(uint32_t bucket, uint64_t id) {
  absl::MutexLock lock(&mutex_);
  Entry* chosen = nullptr;
  for (Entry& entry : buckets_[bucket].entries) {
    const bool free = entry.state.writable && entry.unused();
    if (free && (chosen == nullptr || (entry.state.fresh && !chosen->state.fresh))) {
      chosen = &entry;
    }
  }
  if (chosen == nullptr) {
    return std::nullopt;
  }
  chosen->lease = ++last_lease_;
  chosen->leased_by = id;
  Lease lease{.number = chosen->state.number,
              .file = chosen->state.file,
              .fresh = std::exchange(chosen->state.fresh, false)};
  lease.hold = std::shared_ptr<void>(
      nullptr, [table = shared_from_this(), bucket, number = lease.number,
                serial = chosen->lease](void*) { table->Release(bucket, number, serial); });
  return lease;
}

bool FileTable::IsLeased(uint32_t bucket, uint32_t number, uint64_t id) const {
  absl::MutexLock lock(&mutex_);
  const Entry* entry = FindEntry(bucket, number);
  return entry != nullptr && entry->lease != 0 && entry->leased_by == id;
}

bool FileTable::IsNamed(uint32_t bucket, uint32_t number, uint64_t id) const {
  absl::MutexLock lock(&mutex_);
  const Entry* entry = FindEntry(bucket, number);
  return entry != nullptr && entry->named && entry->named_id == id;
}

std::shared_ptr<void> FileTable::TakeOver(uint32_t bucket, uint32_t number, uint64_t id) {
  absl::MutexLock lock(&mutex_);
  Entry* entry = FindEntry(bucket, number);
  if (entry == nullptr) {
    return nullptr;
  }
  ++entry->takers;
  entry->taken_id = id;
  return std::shared_ptr<void>(nullptr, [table = shared_from_this(), bucket, number](void*) {
    table->ReleaseTaken(bucket, number);
  });
}

bool FileTable::IsTakenOver(uint32_t bucket, uint32_t number, uint64_t id) const {
  absl::MutexLock lock(&mutex_);
  const Entry* entry = FindEntry(bucket, number);
  return entry != nullptr && entry->takers > 0 && entry->taken_id == id;
}

void FileTable::SetRecords(const std::vector<RecordSummary>& records) {
  absl::MutexLock lock(&mutex_);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (Entry& entry : buckets_[b].entries) {
      NameBy(records, b, entry);
    }
  }
}

void FileTable::NameBy(const std::vector<RecordSummary>& records, size_t bucket, Entry& entry) {
  entry.named = false;
  for (const RecordSummary& record : records) {
    if (bucket < record.buckets.size() && record.buckets[bucket].file() == entry.state.number) {
      entry.named = true;
      entry.named_id = record.buckets[bucket].written_by();
    }
  }
}

void FileTable::EndLease(uint32_t bucket, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  if (Entry* entry = FindEntry(bucket, number); entry != nullptr) {
    entry->lease = 0;
  }
}

uint64_t FileTable::size_bytes() const {
  absl::MutexLock lock(&mutex_);
  uint64_t bytes = 0;
  for (const Bucket& bucket : buckets_) {
    for (const Entry& entry : bucket.entries) {
      bytes += entry.state.file_bytes;
    }
  }
  return bytes;
}

void FileTable::Release(uint32_t bucket, uint32_t number, uint64_t lease) {
  absl::MutexLock lock(&mutex_);
  if (Entry* entry = FindEntry(bucket, number); entry != nullptr && entry->lease == lease) {
    entry->lease = 0;
  }
}

void FileTable::ReleaseTaken(uint32_t bucket, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  if (Entry* entry = FindEntry(bucket, number); entry != nullptr) {
    --entry->takers;
  }
}

FileTable::Entry* FileTable::FindEntry(uint32_t bucket, uint32_t number) {
  for (Entry& entry : buckets_[bucket].entries) {
    if (entry.state.number == number) {
      return &entry;
    }
  }
  return nullptr;
}

const FileTable::Entry* FileTable::FindEntry(uint32_t bucket, uint32_t number) const {
  for (const Entry& entry : buckets_[bucket].entries) {
    if (entry.state.number == number) {
      return &entry;
    }
  }
  return nullptr;
}

}  // namespace moment::store
