#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace moment::io {

inline constexpr uint64_t kSimulatedBlockBytes = 4096;
inline constexpr uint64_t kSimulatedSectorBytes = 512;

// splitmix64: small, seeded, the same on every machine.
class SimulatedRandom {
 public:
  explicit SimulatedRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // 0 .. bound - 1.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // True with these odds.
  bool Chance(double odds);

 private:
  uint64_t state_;
};

// Decides what of the unsynced changes a crash leaves: nothing (choice 0), everything (choice 1),
// or a draw from the number.
class CrashChooser {
 public:
  explicit CrashChooser(uint64_t choice) : choice_(choice), random_(choice) {}

  // Before each file and before the names: how likely changes are kept there (often all or none, so
  // that "the record is there, the data is not" is drawn as often as mixtures).
  void NextObject();
  bool Keep();
  // One of `count` states of a thing, from the durable one (0) to the newest (count - 1).
  uint64_t State(uint64_t count);
  // Whether this sector of a block that is kept is one from before.
  bool TearBlock();
  bool OldSector() { return random_.Below(2) == 0; }

 private:
  uint64_t choice_;
  SimulatedRandom random_;
  uint64_t keep_of_four_ = 0;
};

// The bytes of one file: what is durable, and in front of it what was changed since the last sync.
// Holds only blocks that were written; copies share them. Not thread-safe (the disk's lock).
class SimulatedContent {
 public:
  uint64_t size() const { return pending_.back().size; }
  uint64_t allocated_bytes() const;
  // Bytes of blocks that a write of this range would add to allocated_bytes().
  uint64_t MissingBytes(uint64_t offset, uint64_t length) const;

  // The newest bytes; the range lies within size().
  void Read(uint64_t offset, std::span<std::byte> out) const;
  void Write(uint64_t offset, std::span<const std::byte> bytes);
  // Exactly `length` reserved bytes that read as zero.
  void Reset(uint64_t length);

  void Sync();
  // A sync that failed: bytes written before it may stay volatile for ever, although they are read
  // back and a later sync reports success.
  void FailSync();

  uint64_t unsynced_changes() const;
  SimulatedContent AfterCrash(CrashChooser& chooser) const;

  // Behind the file's back: durable at once.
  void Replace(const std::vector<std::byte>& bytes);

 private:
  using Block = std::array<std::byte, kSimulatedBlockBytes>;
  using BlockPtr = std::shared_ptr<const Block>;  // null: zeros
  struct Version {
    BlockPtr block;
    bool lost = false;  // a failed sync covered it
  };
  struct Durable {
    uint64_t size = 0;
    uint64_t reserved = 0;
    std::map<uint64_t, BlockPtr> blocks;
  };
  // Changes since the last sync, or since the Reset that began this epoch.
  struct Epoch {
    std::optional<uint64_t> reset_length;
    uint64_t size = 0;
    std::map<uint64_t, std::vector<Version>> blocks;
  };

  BlockPtr Find(uint64_t block) const;
  uint64_t Reserved() const;
  void PutVersion(uint64_t block, BlockPtr bytes);
  static BlockPtr ChooseBlock(const BlockPtr& durable, const std::vector<Version>& versions,
                              CrashChooser& chooser);
  static void CutAt(Durable* content, uint64_t size);

  Durable durable_;
  std::vector<Epoch> pending_ = std::vector<Epoch>(1);  // never empty; only the first has no reset
};

}  // namespace moment::io
