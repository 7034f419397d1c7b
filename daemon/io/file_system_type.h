#pragma once

#include <cstdint>
#include <string>

namespace moment::io {

// What statfs's f_type stands for.
struct FileSystemType {
  std::string name;  // "0x..." when it is none we know
  bool is_volatile = false;
  bool is_network = false;
  bool is_known = false;  // its crash rules were checked
};

FileSystemType ClassifyFileSystem(uint64_t magic);

}  // namespace moment::io
