#pragma once

#include <cstdint>
#include <string>

#include "daemon/cli/doctor_check.h"

// What momentd needs of the operating system, tried with the rights of this process.
namespace moment::cli {

// The limit of locked memory, against which older kernels count io_uring.
Check CheckLockedMemory();
// The same, of a process with this limit.
Check JudgeLockedMemory(uint64_t limit_bytes, bool is_exempt);

// Descriptors: three files a bucket, and those of trainers.
Check CheckFileLimit();
Check JudgeFileLimit(uint64_t soft, uint64_t hard);

// Makes a ring, as the daemon does.
Check CheckIoUring();

// File system, rights and direct I/O of a state directory; writes a file without a name there.
Check CheckStateDirectory(const std::string& path);

}  // namespace moment::cli
