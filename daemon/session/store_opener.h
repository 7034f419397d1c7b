#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/pipeline/node.h"
#include "daemon/pipeline/state_pipeline.h"
#include "daemon/store/store.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

struct OpenedStore {
  std::unique_ptr<pipeline::StatePipeline> pipeline;
  v1::Profile profile = v1::PROFILE_UNSPECIFIED;
  std::string device;
  device::MemoryImporter* importer = nullptr;  // of the device; null if it opens no memory
  std::string io_engine;
  std::vector<std::string> warnings;  // what is degraded, a sentence each
};

// Makes the pipeline of a store. Thread-safe; the manager never opens one store twice at a time.
class StoreOpener {
 public:
  virtual ~StoreOpener() = default;
  virtual absl::StatusOr<OpenedStore> Open(const v1::OpenRequest& request, uid_t owner) = 0;
};

// A state directory as the daemon set it up. Owned by the app; never changes.
struct StateDirectory {
  std::string path;
  io::DirectoryProbe probe;
  io::IoEngine* engine = nullptr;
  std::string engine_reason;  // why it is not io_uring; empty if it is, or was not asked for
  uint32_t file_permissions = 0640;
  uint32_t directory_permissions = 0750;
};

// The real one: places a store where it is already, else where the request says, else in the
// directory with the most free space.
class NodeStoreOpener : public StoreOpener {
 public:
  // `max_pins`: commits of one store that may be pinned at once.
  NodeStoreOpener(const std::vector<StateDirectory>& directories, io::FileSystem& files,
                  pipeline::Node& node, const std::vector<device::Device*>& devices,
                  uint32_t max_pins)
      : directories_(directories),
        files_(files),
        node_(node),
        devices_(devices),
        max_pins_(max_pins) {}

  absl::StatusOr<OpenedStore> Open(const v1::OpenRequest& request, uid_t owner) override;

 private:
  absl::StatusOr<const StateDirectory*> Place(const v1::OpenRequest& request) const;
  absl::StatusOr<const StateDirectory*> FindExisting(const v1::StoreName& name) const;
  absl::StatusOr<const StateDirectory*> Emptiest() const;

  const std::vector<StateDirectory>& directories_;
  io::FileSystem& files_;
  pipeline::Node& node_;
  const std::vector<device::Device*>& devices_;  // the host first
  const uint32_t max_pins_;
};

}  // namespace moment::session
