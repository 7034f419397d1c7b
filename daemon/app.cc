#include "daemon/app.h"

#include <prometheus/exposer.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/access.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/base/worker_pool.h"
#include "daemon/devices.h"
#include "daemon/health_watch.h"
#include "daemon/host_memory.h"
#include "daemon/pipeline/node.h"
#include "daemon/ring_factory.h"
#include "daemon/rpc/acceptor.h"
#include "daemon/rpc/descriptor_server.h"
#include "daemon/rpc/health.h"
#include "daemon/rpc/listener.h"
#include "daemon/rpc/server.h"
#include "daemon/service/admin_service.h"
#include "daemon/service/metrics.h"
#include "daemon/service/optimizer_service.h"
#include "daemon/session/session_manager.h"
#include "daemon/state_directories.h"
#include "daemon/system_notify.h"

namespace moment {
namespace {

// Commits of the last applied steps after the drain time; longer means that a disk does not answer.
constexpr std::chrono::minutes kCommitTimeout{10};
constexpr std::chrono::milliseconds kCallGrace{1000};

int WorkerThreads(const config::Config& config) {
  return config.worker_threads != 0
             ? static_cast<int>(config.worker_threads)
             : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::vector<std::string> HealthServices(const std::vector<session::StateDirectory>& directories) {
  std::vector<std::string> services = {"", "liveness", "readiness"};
  for (const session::StateDirectory& directory : directories) {
    services.push_back(directory.path);
  }
  return services;
}

}  // namespace

// Members in the order of their start; they are destroyed the other way round.
class App::Parts {
 public:
  explicit Parts(const config::Config& config) : config_(config) {}

  absl::Status Start() {
    MOMENT_RETURN_IF_ERROR(CheckHostMemory(config_.host_memory_bytes));
    MOMENT_RETURN_IF_ERROR(StartCore());
    MOMENT_RETURN_IF_ERROR(StartSessions());
    MOMENT_RETURN_IF_ERROR(StartDoors());
    return StartMetrics();
  }

  absl::Status Stop() {
    draining_ = true;
    health_watch_->Drain();
    acceptor_.reset();
    listeners_.clear();
    const absl::Status committed =
        sessions_->Stop(session::Clock::now() + config_.drain_timeout, kCommitTimeout);
    trainers_->Stop(kCallGrace);
    operators_->Stop(kCallGrace);
    return committed;
  }

  int lost_fd() const { return lost_.get(); }

 private:
  absl::Status StartCore() {
    MOMENT_ASSIGN_OR_RETURN(directories_, StateDirectories::Open(config_, *files_));
    workers_ = std::make_unique<base::WorkerPool>(WorkerThreads(config_));
    MOMENT_ASSIGN_OR_RETURN(devices_, Devices::Open(config_, *workers_));
    MOMENT_RETURN_IF_ERROR(WatchDevices());
    pipeline::NodeOptions options;
    options.host_memory_bytes = config_.host_memory_bytes;
    options.io_depth = config_.io_depth;
    options.devices = devices_->gpus();
    MOMENT_ASSIGN_OR_RETURN(node_, pipeline::Node::Create(options, *workers_));
    for (const session::StateDirectory& directory : directories_->directories()) {
      node_->AddStateDirectory(directory.path, *directory.engine);
      health_.push_back(std::make_unique<service::DirectoryHealth>());
    }
    return absl::OkStatus();
  }

  absl::Status WatchDevices() {
    lost_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!lost_.valid()) {
      return base::ErrnoStatus(errno, "make", "an eventfd");
    }
    devices_->OnLost([fd = lost_.get()](const std::string& name, const absl::Status& status) {
      spdlog::critical("event=device_lost name={} error={}", name, base::Quoted(status.message()));
      ::eventfd_write(fd, 1);
    });
    return absl::OkStatus();
  }

  absl::Status StartSessions() {
    MOMENT_ASSIGN_OR_RETURN(peers_, session::PeerWatch::Create());
    opener_ = std::make_unique<session::NodeStoreOpener>(
        directories_->directories(), *files_, *node_, devices_->all(), config_.max_saves);
    session::ManagerOptions options;
    options.lease = config_.lease;
    options.make_ring = RingFactory(config_.ring_slots, config_.ring_slot_bytes, devices_->gpus());
    sessions_ = std::make_unique<session::SessionManager>(options, *opener_, *peers_);
    sources_ = {std::chrono::steady_clock::now(),
                &directories_->directories(),
                &health_,
                sessions_.get(),
                node_.get(),
                &devices_->all(),
                &draining_,
                &devices_->notices()};
    board_ = std::make_shared<rpc::HealthBoard>(HealthServices(directories_->directories()));
    return absl::OkStatus();
  }

  absl::Status StartDoors() {
    MOMENT_ASSIGN_OR_RETURN(const std::optional<gid_t> group, FindGroup(config_.socket_group));
    MOMENT_ASSIGN_OR_RETURN(rpc::SocketDirectory directory,
                            rpc::SocketDirectory::Acquire(
                                {config_.socket_directory, config_.socket_directory_mode, group}));
    socket_directory_ = std::make_unique<rpc::SocketDirectory>(std::move(directory));
    MOMENT_RETURN_IF_ERROR(Listen("momentd.sock", SOCK_STREAM, config_.socket_mode, group));
    MOMENT_RETURN_IF_ERROR(Listen("admin.sock", SOCK_STREAM, config_.admin_socket_mode, group));
    MOMENT_RETURN_IF_ERROR(Listen("fd.sock", SOCK_SEQPACKET, config_.socket_mode, group));
    MOMENT_RETURN_IF_ERROR(StartServers());
    health_watch_ = std::make_unique<HealthWatch>(directories_->directories(), health_, *files_,
                                                  *board_, config_.stall_after);
    acceptor_ = std::make_unique<rpc::Acceptor>(Doors(), MakeAccessList(config_, group));
    return absl::OkStatus();
  }

  absl::Status Listen(const std::string& name, int type, uint32_t mode,
                      std::optional<gid_t> group) {
    MOMENT_ASSIGN_OR_RETURN(rpc::UnixListener listener,
                            rpc::UnixListener::Bind(*socket_directory_, {name, type, mode, group}));
    listeners_.push_back(std::make_unique<rpc::UnixListener>(std::move(listener)));
    return absl::OkStatus();
  }

  absl::Status StartServers() {
    optimizer_service_ = std::make_unique<service::OptimizerService>(
        *sessions_, [this](const std::string& connection) { return peer_table_.Find(connection); });
    admin_service_ =
        std::make_unique<service::AdminService>(sources_, *sessions_, *files_, *workers_);
    health_service_ = std::make_unique<rpc::HealthService>(board_);
    MOMENT_ASSIGN_OR_RETURN(
        trainers_, rpc::Server::Create({optimizer_service_.get(), health_service_.get()}, ""));
    MOMENT_ASSIGN_OR_RETURN(operators_,
                            rpc::Server::Create({admin_service_.get(), health_service_.get()}, ""));
    if (!config_.health_listen.empty()) {
      MOMENT_ASSIGN_OR_RETURN(probes_,
                              rpc::Server::Create({health_service_.get()}, config_.health_listen));
      spdlog::info("event=health_listen address={} port={}", config_.health_listen,
                   probes_->port());
    }
    descriptors_ = std::make_unique<rpc::DescriptorServer>(*sessions_);
    return absl::OkStatus();
  }

  std::vector<rpc::Door> Doors() {
    return {{listeners_[0]->fd(), "momentd.sock",
             [this](base::UniqueFd connection, session::Peer peer) {
               peer_table_.Add(connection.get(), std::move(peer));
               trainers_->Serve(std::move(connection));
             }},
            {listeners_[1]->fd(), "admin.sock",
             [this](base::UniqueFd connection, const session::Peer&) {
               operators_->Serve(std::move(connection));
             }},
            {listeners_[2]->fd(), "fd.sock", [this](base::UniqueFd connection, session::Peer peer) {
               descriptors_->Add(std::move(connection), std::move(peer));
             }}};
  }

  absl::Status StartMetrics() {
    if (config_.metrics_listen.empty()) {
      return absl::OkStatus();
    }
    metrics_ = std::make_shared<service::Metrics>(sources_);
    try {
      exposer_ = std::make_unique<prometheus::Exposer>(config_.metrics_listen, 1);
      exposer_->RegisterCollectable(metrics_);
    } catch (const std::exception& error) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot serve metrics on ", config_.metrics_listen, ": ", error.what()));
    }
    return absl::OkStatus();
  }

  const config::Config config_;
  std::atomic<bool> draining_{false};
  base::UniqueFd lost_;  // an eventfd
  const std::unique_ptr<io::FileSystem> files_ = io::CreatePosixFileSystem();
  std::unique_ptr<StateDirectories> directories_;
  std::unique_ptr<base::WorkerPool> workers_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<pipeline::Node> node_;
  std::vector<std::unique_ptr<service::DirectoryHealth>> health_;
  std::unique_ptr<session::PeerWatch> peers_;
  std::unique_ptr<session::NodeStoreOpener> opener_;
  std::unique_ptr<session::SessionManager> sessions_;
  service::StatusSources sources_;
  std::shared_ptr<rpc::HealthBoard> board_;
  rpc::PeerTable peer_table_;
  std::unique_ptr<rpc::SocketDirectory> socket_directory_;
  std::vector<std::unique_ptr<rpc::UnixListener>> listeners_;
  std::unique_ptr<service::OptimizerService> optimizer_service_;
  std::unique_ptr<service::AdminService> admin_service_;
  std::unique_ptr<rpc::HealthService> health_service_;
  std::unique_ptr<rpc::DescriptorServer> descriptors_;
  std::unique_ptr<rpc::Server> trainers_;
  std::unique_ptr<rpc::Server> operators_;
  std::unique_ptr<rpc::Server> probes_;
  std::unique_ptr<HealthWatch> health_watch_;
  std::unique_ptr<rpc::Acceptor> acceptor_;
  std::shared_ptr<service::Metrics> metrics_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

App::App(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

App::~App() = default;

absl::StatusOr<std::unique_ptr<App>> App::Start(const config::Config& config) {
  auto parts = std::make_unique<Parts>(config);
  MOMENT_RETURN_IF_ERROR(parts->Start());
  return std::unique_ptr<App>(new App(std::move(parts)));
}

absl::Status App::Stop() { return parts_->Stop(); }

int App::lost_fd() const { return parts_->lost_fd(); }

}  // namespace moment
