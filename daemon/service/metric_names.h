#pragma once

// Every metric's name; docs/reference/metrics.md says what they mean.
namespace moment::service::metric {

inline constexpr char kBuild[] = "moment_build_info";
inline constexpr char kUptime[] = "moment_uptime_seconds";
inline constexpr char kSessions[] = "moment_sessions_count";
inline constexpr char kIoRead[] = "moment_io_read_bytes_total";
inline constexpr char kIoWritten[] = "moment_io_written_bytes_total";
inline constexpr char kIoOldest[] = "moment_io_oldest_seconds";
inline constexpr char kDirectoryFree[] = "moment_state_directory_free_bytes";
inline constexpr char kDirectoryTotal[] = "moment_state_directory_size_bytes";
inline constexpr char kDirectoryHealthy[] = "moment_state_directory_healthy";
inline constexpr char kPoolBudget[] = "moment_pool_budget_bytes";
inline constexpr char kPoolAllocated[] = "moment_pool_allocated_bytes";
inline constexpr char kPoolFrames[] = "moment_pool_frames_count";
inline constexpr char kGpuContext[] = "moment_gpu_context_bytes";
inline constexpr char kGpuStaging[] = "moment_gpu_staging_bytes";
inline constexpr char kGpuStagingUsed[] = "moment_gpu_staging_used_bytes";
inline constexpr char kSteps[] = "moment_session_steps_total";
inline constexpr char kSequence[] = "moment_session_sequence";
inline constexpr char kCommittedSequence[] = "moment_session_committed_sequence";
inline constexpr char kStepSeconds[] = "moment_session_last_step_seconds";
inline constexpr char kStateBytes[] = "moment_session_state_bytes";
inline constexpr char kResidentBytes[] = "moment_session_resident_bytes";
inline constexpr char kPins[] = "moment_session_pins_count";
inline constexpr char kPinnedBytes[] = "moment_session_pinned_bytes";

}  // namespace moment::service::metric
