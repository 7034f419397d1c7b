#include "daemon/service/metrics.h"

#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/service/metric_names.h"

namespace moment::service {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// Families in the order of their first use.
class Families {
 public:
  void Gauge(const char* name, const char* help, Labels labels, double value) {
    prometheus::ClientMetric& metric = Add(name, help, prometheus::MetricType::Gauge);
    metric.label = std::move(labels);
    metric.gauge.value = value;
  }
  void Counter(const char* name, const char* help, Labels labels, double value) {
    prometheus::ClientMetric& metric = Add(name, help, prometheus::MetricType::Counter);
    metric.label = std::move(labels);
    metric.counter.value = value;
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(const char* name, const char* help, prometheus::MetricType type) {
    for (prometheus::MetricFamily& family : families_) {
      if (family.name == name) {
        return family.metric.emplace_back();
      }
    }
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    return family.metric.emplace_back();
  }

  std::vector<prometheus::MetricFamily> families_;
};

double ToDouble(uint64_t value) { return static_cast<double>(value); }

void AddDirectory(const v1::StateDirectoryStatus& status, Families& families) {
  const Labels labels = {{"directory", status.path()}, {"engine", status.io_engine()}};
  families.Counter(metric::kIoRead, "Bytes read from state files.", labels,
                   ToDouble(status.bytes_read()));
  families.Counter(metric::kIoWritten, "Bytes written to state files.", labels,
                   ToDouble(status.bytes_written()));
  families.Gauge(metric::kIoOldest, "Age of the oldest read or write under way.", labels,
                 status.oldest_io_seconds());
  families.Gauge(metric::kDirectoryFree, "Free space.", labels, ToDouble(status.free_bytes()));
  families.Gauge(metric::kDirectoryTotal, "Size of the file system.", labels,
                 ToDouble(status.total_bytes()));
  families.Gauge(metric::kDirectoryHealthy, "1 unless its device stalls.", labels,
                 status.health() == "device" ? 0 : 1);
}

void AddPool(const v1::PoolStatus& pool, Families& families) {
  families.Gauge(metric::kPoolBudget, "Budget of the frame pool.", {},
                 ToDouble(pool.budget_bytes()));
  families.Gauge(metric::kPoolAllocated, "Memory of the frame pool.", {},
                 ToDouble(pool.allocated_bytes()));
  const std::pair<const char*, uint64_t> states[] = {{"free", pool.frames_free()},
                                                     {"clean", pool.frames_clean()},
                                                     {"dirty", pool.frames_dirty()},
                                                     {"busy", pool.frames_busy()}};
  for (const auto& [state, count] : states) {
    families.Gauge(metric::kPoolFrames, "Frames of the pool by state.", {{"state", state}},
                   ToDouble(count));
  }
}

void AddGpu(const v1::DeviceStatus& device, Families& families) {
  const Labels labels = {{"gpu", device.name()}};
  const v1::GpuMemory& memory = device.memory();
  if (memory.has_context_bytes()) {
    families.Gauge(metric::kGpuContext, "Memory of the GPU that the context takes.", labels,
                   ToDouble(memory.context_bytes()));
  }
  families.Gauge(metric::kGpuStaging, "Memory of the GPU that chunks pass through.", labels,
                 ToDouble(memory.staging_bytes()));
  families.Gauge(metric::kGpuStagingUsed, "Of it, by chunks in work.", labels,
                 ToDouble(memory.staging_used_bytes()));
}

void AddSession(const v1::SessionStatus& status, Families& families) {
  const Labels labels = {{"job", status.name().job()},
                         {"role", status.name().role()},
                         {"rank", absl::StrCat(status.name().rank())}};
  families.Counter(metric::kSteps, "Steps applied in this session.", labels,
                   ToDouble(status.steps()));
  families.Gauge(metric::kSequence, "Sequence of the last applied step.", labels,
                 ToDouble(status.sequence()));
  families.Gauge(metric::kCommittedSequence, "Sequence of the newest commit.", labels,
                 ToDouble(status.committed_sequence()));
  families.Gauge(metric::kStepSeconds, "Seconds of the last step.", labels,
                 status.last_step().total_seconds());
  families.Gauge(metric::kStateBytes, "Bytes of the optimizer state.", labels,
                 ToDouble(status.state_bytes()));
  families.Gauge(metric::kResidentBytes, "Bytes of it that stay in the pool.", labels,
                 ToDouble(status.resident_bytes()));
  uint64_t pinned_bytes = 0;
  for (const v1::PinSummary& pin : status.pins()) {
    pinned_bytes += pin.size_bytes();
  }
  families.Gauge(metric::kPins, "Live pins.", labels, status.pins_size());
  families.Gauge(metric::kPinnedBytes, "Bytes of their files; pins of one commit share theirs.",
                 labels, ToDouble(pinned_bytes));
}

}  // namespace

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  const v1::StatusResponse status = ReportStatus(sources_);
  Families families;
  families.Gauge(metric::kBuild, "Always 1; the version is a label.",
                 {{"version", status.version()}}, 1);
  families.Gauge(metric::kUptime, "Seconds since the daemon began.", {}, status.uptime_seconds());
  families.Gauge(metric::kSessions, "Live sessions.", {}, status.sessions_size());
  for (const v1::StateDirectoryStatus& directory : status.state_directories()) {
    AddDirectory(directory, families);
  }
  AddPool(status.pool(), families);
  for (const v1::DeviceStatus& device : status.devices()) {
    if (device.has_memory()) {
      AddGpu(device, families);
    }
  }
  for (const v1::SessionStatus& session : status.sessions()) {
    AddSession(session, families);
  }
  return families.Take();
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(Collect()); }

}  // namespace moment::service
