#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "daemon/service/status_report.h"

namespace moment::service {

// The status as Prometheus metrics, collected when someone asks. docs/reference/metrics.md lists
// the names. Thread-safe.
class Metrics : public prometheus::Collectable {
 public:
  explicit Metrics(const StatusSources& sources) : sources_(sources) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  std::string Text() const;

 private:
  const StatusSources& sources_;
};

}  // namespace moment::service
