#pragma once

#include <string>

#include "daemon/base/worker_pool.h"
#include "daemon/io/file_system.h"
#include "daemon/service/status_report.h"
#include "daemon/session/session_manager.h"
#include "moment/v1/admin.grpc.pb.h"

namespace moment::service {

// The operator's calls. They run on gRPC's threads and may block on a disk; Drop alone changes
// anything.
class AdminService : public v1::Admin::Service {
 public:
  AdminService(const StatusSources& sources, session::SessionManager& sessions,
               io::FileSystem& files, base::WorkerPool& workers)
      : sources_(sources), sessions_(sessions), files_(files), workers_(workers) {}

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusResponse* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override;
  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;
  grpc::Status Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                      grpc::ServerWriter<v1::VerifyResponse>* writer) override;
  grpc::Status Compact(grpc::ServerContext* context, const v1::CompactRequest* request,
                       grpc::ServerWriter<v1::CompactResponse>* writer) override;
  grpc::Status Drop(grpc::ServerContext* context, const v1::DropRequest* request,
                    v1::DropResponse* response) override;
  grpc::Status Stats(grpc::ServerContext* context, const v1::StatsRequest* request,
                     v1::StatsResponse* response) override;
  grpc::Status SetLogLevel(grpc::ServerContext* context, const v1::SetLogLevelRequest* request,
                           v1::SetLogLevelResponse* response) override;

 private:
  struct Place {
    const session::StateDirectory* directory = nullptr;
    std::string path;
  };
  absl::StatusOr<Place> Find(const v1::StoreName& name) const;
  absl::StatusOr<v1::ListResponse> ListAll() const;
  absl::StatusOr<v1::DropResponse> DropPin(const v1::StoreName& name, const std::string& pin) const;
  absl::StatusOr<v1::DescribeResponse> DescribeStore(const v1::StoreName& name) const;
  absl::Status VerifyStore(const v1::StoreName& name, grpc::ServerContext& context,
                           grpc::ServerWriter<v1::VerifyResponse>& writer) const;
  // Runs `work` while the store's files do not change: in its live session's turn, if it has one.
  absl::Status WhileUnchanged(const v1::StoreName& name, const std::string& kind,
                              const std::function<absl::Status()>& work) const;

  const StatusSources& sources_;
  session::SessionManager& sessions_;
  io::FileSystem& files_;
  base::WorkerPool& workers_;
};

}  // namespace moment::service
