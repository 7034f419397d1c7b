#include "daemon/io/simulated_content.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/memory.h"

namespace moment::io {
namespace {

// Older unsynced versions of one block than this are forgotten.
constexpr uint64_t kMaxVersions = 8;

uint64_t BlocksOf(uint64_t bytes) {
  return base::RoundUp(bytes, kSimulatedBlockBytes) / kSimulatedBlockBytes;
}

}  // namespace

uint64_t SimulatedRandom::Next() {
  uint64_t value = (state_ += 0x9E3779B97F4A7C15U);
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

bool SimulatedRandom::Chance(double odds) {
  constexpr double kRange = 9007199254740992.0;  // 2^53
  return odds > 0 && static_cast<double>(Next() >> 11) < odds * kRange;
}

void CrashChooser::NextObject() {
  constexpr std::array<uint64_t, 6> kOdds = {0, 4, 1, 2, 2, 3};
  keep_of_four_ = kOdds[random_.Below(kOdds.size())];
}

bool CrashChooser::Keep() { return choice_ < 2 ? choice_ == 1 : random_.Below(4) < keep_of_four_; }

uint64_t CrashChooser::State(uint64_t count) {
  if (!Keep()) {
    return 0;
  }
  const bool newest = choice_ < 2 || count < 3 || random_.Below(2) == 0;
  return newest ? count - 1 : 1 + random_.Below(count - 1);
}

bool CrashChooser::TearBlock() { return choice_ >= 2 && random_.Below(4) == 0; }

SimulatedContent::BlockPtr SimulatedContent::Find(uint64_t block) const {
  const Epoch& newest = pending_.back();
  if (auto found = newest.blocks.find(block); found != newest.blocks.end()) {
    return found->second.back().block;
  }
  if (newest.reset_length.has_value()) {
    return nullptr;
  }
  auto found = durable_.blocks.find(block);
  return found == durable_.blocks.end() ? nullptr : found->second;
}

uint64_t SimulatedContent::Reserved() const {
  return pending_.back().reset_length.value_or(durable_.reserved);
}

uint64_t SimulatedContent::allocated_bytes() const {
  const uint64_t reserved = BlocksOf(Reserved());
  const Epoch& newest = pending_.back();
  uint64_t count = reserved;
  for (auto at = newest.blocks.lower_bound(reserved); at != newest.blocks.end(); ++at) {
    ++count;
  }
  if (!newest.reset_length.has_value()) {
    for (auto at = durable_.blocks.lower_bound(reserved); at != durable_.blocks.end(); ++at) {
      count += newest.blocks.contains(at->first) ? 0 : 1;
    }
  }
  return count * kSimulatedBlockBytes;
}

uint64_t SimulatedContent::MissingBytes(uint64_t offset, uint64_t length) const {
  uint64_t missing = 0;
  const uint64_t first = std::max(offset / kSimulatedBlockBytes, BlocksOf(Reserved()));
  for (uint64_t block = first; block < BlocksOf(offset + length); ++block) {
    missing += Find(block) == nullptr ? kSimulatedBlockBytes : 0;
  }
  return missing;
}

void SimulatedContent::Read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const uint64_t within = offset % kSimulatedBlockBytes;
    const uint64_t length = std::min<uint64_t>(out.size(), kSimulatedBlockBytes - within);
    const BlockPtr block = Find(offset / kSimulatedBlockBytes);
    if (block == nullptr) {
      std::memset(out.data(), 0, length);
    } else {
      std::memcpy(out.data(), block->data() + within, length);
    }
    offset += length;
    out = out.subspan(length);
  }
}

void SimulatedContent::Write(uint64_t offset, std::span<const std::byte> bytes) {
  Epoch& newest = pending_.back();
  newest.size = std::max(newest.size, offset + bytes.size());
  while (!bytes.empty()) {
    const uint64_t within = offset % kSimulatedBlockBytes;
    const uint64_t length = std::min<uint64_t>(bytes.size(), kSimulatedBlockBytes - within);
    const uint64_t index = offset / kSimulatedBlockBytes;
    const BlockPtr old = length < kSimulatedBlockBytes ? Find(index) : nullptr;
    auto block = old == nullptr ? std::make_shared<Block>() : std::make_shared<Block>(*old);
    std::memcpy(block->data() + within, bytes.data(), length);
    PutVersion(index, std::move(block));
    offset += length;
    bytes = bytes.subspan(length);
  }
}

void SimulatedContent::PutVersion(uint64_t block, BlockPtr bytes) {
  std::vector<Version>& versions = pending_.back().blocks[block];
  if (versions.size() == kMaxVersions) {
    versions.erase(versions.begin());
  }
  versions.push_back({std::move(bytes)});
}

void SimulatedContent::Reset(uint64_t length) {
  pending_.push_back({.reset_length = length, .size = length});
}

void SimulatedContent::Sync() {
  Epoch newest = std::move(pending_.back());
  if (newest.reset_length.has_value()) {
    durable_ = {.reserved = *newest.reset_length};
  }
  durable_.size = newest.size;
  Epoch left{.size = newest.size};
  for (auto& [block, versions] : newest.blocks) {
    if (versions.back().lost) {
      left.blocks.emplace(block, std::move(versions));
    } else {
      durable_.blocks[block] = versions.back().block;
    }
  }
  pending_.clear();
  pending_.push_back(std::move(left));
}

void SimulatedContent::FailSync() {
  for (auto& [block, versions] : pending_.back().blocks) {
    for (Version& version : versions) {
      version.lost = true;
    }
  }
}

uint64_t SimulatedContent::unsynced_changes() const {
  uint64_t count = pending_.front().size == durable_.size ? 0 : 1;
  for (const Epoch& epoch : pending_) {
    const bool grown = epoch.reset_length.has_value() && epoch.size != *epoch.reset_length;
    count += epoch.blocks.size() + (epoch.reset_length.has_value() ? 1 : 0) + (grown ? 1 : 0);
  }
  return count;
}

SimulatedContent::BlockPtr SimulatedContent::ChooseBlock(const BlockPtr& durable,
                                                         const std::vector<Version>& versions,
                                                         CrashChooser& chooser) {
  const uint64_t state = chooser.State(versions.size() + 1);
  if (state == 0) {
    return durable;
  }
  const BlockPtr& kept = versions[state - 1].block;
  if (!chooser.TearBlock()) {
    return kept;
  }
  const BlockPtr& before = state == 1 ? durable : versions[state - 2].block;
  auto torn = std::make_shared<Block>(*kept);
  for (uint64_t at = 0; at < kSimulatedBlockBytes; at += kSimulatedSectorBytes) {
    if (chooser.OldSector()) {
      std::memset(torn->data() + at, 0, kSimulatedSectorBytes);
      if (before != nullptr) {
        std::memcpy(torn->data() + at, before->data() + at, kSimulatedSectorBytes);
      }
    }
  }
  return torn;
}

void SimulatedContent::CutAt(Durable* content, uint64_t size) {
  content->size = size;
  content->blocks.erase(content->blocks.lower_bound(BlocksOf(size)), content->blocks.end());
  const uint64_t within = size % kSimulatedBlockBytes;
  auto last = content->blocks.find(size / kSimulatedBlockBytes);
  if (within != 0 && last != content->blocks.end() && last->second != nullptr) {
    auto cut = std::make_shared<Block>(*last->second);
    std::memset(cut->data() + within, 0, kSimulatedBlockBytes - within);
    last->second = std::move(cut);
  }
}

SimulatedContent SimulatedContent::AfterCrash(CrashChooser& chooser) const {
  chooser.NextObject();
  // A write after a Reset lands in blocks that only the Reset gave to the file: no Reset, no write.
  const Epoch& epoch = pending_[chooser.State(pending_.size())];
  SimulatedContent after;
  after.durable_ = epoch.reset_length.has_value()
                       ? Durable{.size = *epoch.reset_length, .reserved = *epoch.reset_length}
                       : durable_;
  const uint64_t size = chooser.Keep() ? epoch.size : after.durable_.size;
  for (const auto& [index, versions] : epoch.blocks) {
    auto found = after.durable_.blocks.find(index);
    const BlockPtr durable = found == after.durable_.blocks.end() ? nullptr : found->second;
    if (BlockPtr chosen = ChooseBlock(durable, versions, chooser); chosen != durable) {
      after.durable_.blocks[index] = std::move(chosen);
    }
  }
  CutAt(&after.durable_, size);
  after.pending_.back().size = size;
  return after;
}

void SimulatedContent::Replace(const std::vector<std::byte>& bytes) {
  const uint64_t reserved = std::min<uint64_t>(Reserved(), bytes.size());
  *this = SimulatedContent();
  Write(0, bytes);
  durable_.reserved = reserved;
  Sync();
}

}  // namespace moment::io
