#include "daemon/io/file_system_type.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace moment::io {
namespace {

enum class Trait : uint8_t { kChecked, kVolatile, kNetwork, kUnchecked };

struct Row {
  uint64_t magic;
  const char* name;
  Trait trait;
};

// FUSE counts as a network: what is behind it cannot be known, and often it is one.
constexpr std::array<Row, 16> kTypes = {{
    {0xEF53, "ext4", Trait::kChecked},
    {0x58465342, "xfs", Trait::kChecked},
    {0x01021994, "tmpfs", Trait::kVolatile},
    {0x794C7630, "overlay", Trait::kVolatile},
    {0x6969, "nfs", Trait::kNetwork},
    {0xFF534D42, "cifs", Trait::kNetwork},
    {0xFE534D42, "smb2", Trait::kNetwork},
    {0x65735546, "fuse", Trait::kNetwork},
    {0x00C36400, "ceph", Trait::kNetwork},
    {0x0BD00BD0, "lustre", Trait::kNetwork},
    {0x47504653, "gpfs", Trait::kNetwork},
    {0x01021997, "9p", Trait::kNetwork},
    {0x9123683E, "btrfs", Trait::kUnchecked},
    {0xF2F52010, "f2fs", Trait::kUnchecked},
    {0x2FC12FC1, "zfs", Trait::kUnchecked},
    {0xCA451A4E, "bcachefs", Trait::kUnchecked},
}};

}  // namespace

FileSystemType ClassifyFileSystem(uint64_t magic) {
  for (const Row& row : kTypes) {
    if (row.magic == magic) {
      return {row.name, row.trait == Trait::kVolatile, row.trait == Trait::kNetwork,
              row.trait == Trait::kChecked || row.trait == Trait::kVolatile};
    }
  }
  return {absl::StrCat("0x", absl::Hex(magic)), false, false, false};
}

}  // namespace moment::io
