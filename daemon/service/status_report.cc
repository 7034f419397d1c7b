#include "daemon/service/status_report.h"

#include <unistd.h>

#include "daemon/service/version.h"

namespace moment::service {
namespace {

v1::StateDirectoryStatus ReportDirectory(const StatusSources& sources, size_t index) {
  const session::StateDirectory& directory = (*sources.directories)[index];
  const DirectoryHealth& health = *(*sources.health)[index];
  v1::StateDirectoryStatus status;
  status.set_path(directory.path);
  status.set_file_system(directory.probe.file_system);
  status.set_io_engine(directory.engine->name());
  status.set_io_engine_reason(directory.engine_reason);
  status.set_direct_io(directory.probe.direct_io);
  status.set_direct_io_reason(directory.probe.direct_io_reason);
  status.set_is_volatile(directory.probe.is_volatile);
  status.set_free_bytes(health.free_bytes);
  status.set_total_bytes(health.total_bytes);
  status.set_bytes_read(sources.node->BytesRead(directory.path));
  status.set_bytes_written(sources.node->BytesWritten(directory.path));
  status.set_oldest_io_seconds(static_cast<double>(directory.engine->OldestTransferNs()) / 1e9);
  status.set_health(health.stalled ? "device" : (health.full ? "space" : "serving"));
  return status;
}

void ReportMemory(const device::DeviceMemoryUse& use, v1::GpuMemory& memory) {
  if (use.context_bytes.has_value()) {
    memory.set_context_bytes(*use.context_bytes);
  }
  memory.set_staging_bytes(use.staging_bytes);
  memory.set_staging_used_bytes(use.staging_used_bytes);
}

void ReportDevices(const StatusSources& sources, v1::StatusResponse& status) {
  for (const device::Device* each : *sources.devices) {
    v1::DeviceStatus* device = status.add_devices();
    device->set_name(each->name());
    device->set_detail(each->Describe());
    if (const std::optional<device::DeviceMemoryUse> use = each->MemoryUse()) {
      ReportMemory(*use, *device->mutable_memory());
    }
  }
  for (const GpuNotice& each : *sources.gpu_notices) {
    v1::GpuNotice* notice = status.add_gpu_notices();
    notice->set_uuid(each.uuid);
    notice->set_setting(each.setting);
    notice->set_unused(each.unused);
    notice->set_text(each.text);
  }
}

}  // namespace

v1::StatusResponse ReportStatus(const StatusSources& sources) {
  v1::StatusResponse status;
  status.set_version(kVersion);
  status.set_pid(static_cast<uint32_t>(::getpid()));
  status.set_uptime_seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - sources.started).count());
  for (size_t i = 0; i < sources.directories->size(); ++i) {
    *status.add_state_directories() = ReportDirectory(sources, i);
  }
  for (const std::shared_ptr<session::Session>& session : sources.sessions->Sessions()) {
    *status.add_sessions() = session->Status();
  }
  ReportDevices(sources, status);
  *status.mutable_pool() = sources.node->PoolStatus();
  status.set_draining(*sources.draining);
  return status;
}

}  // namespace moment::service
