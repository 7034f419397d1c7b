#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

// Little-endian integers at fixed places of a disk structure; the caller has checked the length.
namespace moment::store {

inline void PutUint32(std::span<std::byte> bytes, size_t offset, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) {
    bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

inline void PutUint64(std::span<std::byte> bytes, size_t offset, uint64_t value) {
  for (size_t i = 0; i < 8; ++i) {
    bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

inline void PutText(std::span<std::byte> bytes, size_t offset, absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    bytes[offset + i] = static_cast<std::byte>(text[i]);
  }
}

inline uint32_t GetUint32(std::span<const std::byte> bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= std::to_integer<uint32_t>(bytes[offset + i]) << (8 * i);
  }
  return value;
}

inline uint64_t GetUint64(std::span<const std::byte> bytes, size_t offset) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) {
    value |= std::to_integer<uint64_t>(bytes[offset + i]) << (8 * i);
  }
  return value;
}

inline absl::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace moment::store
