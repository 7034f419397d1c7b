#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/pipeline/node.h"
#include "daemon/service/gpu_notice.h"
#include "daemon/session/session_manager.h"
#include "daemon/session/store_opener.h"
#include "moment/v1/admin.pb.h"

namespace moment::service {

// What the watches last found of a state directory. Written by them, read by anyone.
struct DirectoryHealth {
  std::atomic<bool> stalled{false};
  std::atomic<bool> full{false};
  std::atomic<uint64_t> free_bytes{0};
  std::atomic<uint64_t> total_bytes{0};
};

// Where Admin.Status and the metrics come from. Owned by the app, which outlives the services.
struct StatusSources {
  std::chrono::steady_clock::time_point started;
  const std::vector<session::StateDirectory>* directories = nullptr;
  std::vector<std::unique_ptr<DirectoryHealth>>* health = nullptr;  // as the directories
  const session::SessionManager* sessions = nullptr;
  const pipeline::Node* node = nullptr;
  const std::vector<device::Device*>* devices = nullptr;
  const std::atomic<bool>* draining = nullptr;
  const std::vector<GpuNotice>* gpu_notices = nullptr;
};

// Reads atomics and takes short locks; touches no disk.
v1::StatusResponse ReportStatus(const StatusSources& sources);

}  // namespace moment::service
