#include "daemon/service/admin_service.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "daemon/base/errors.h"
#include "daemon/service/metrics.h"
#include "daemon/service/status.h"
#include "daemon/session/open_request.h"
#include "daemon/store/inspect.h"
#include "daemon/store/pin_files.h"

namespace moment::service {
namespace {

template <typename Response>
grpc::Status Answer(absl::StatusOr<Response> result, Response* response) {
  if (!result.ok()) {
    return ToGrpc(result.status());
  }
  *response = *std::move(result);
  return grpc::Status::OK;
}

grpc::Status Unimplemented(absl::string_view call, absl::string_view instead) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      absl::StrCat(call, " is not part of this version: ", instead));
}

// The one pin whose id begins so.
absl::StatusOr<v1::PinSummary> ChoosePin(const v1::StoreName& name, const v1::StoreSummary& store,
                                         const std::string& beginning) {
  const v1::PinSummary* chosen = nullptr;
  std::vector<std::string> ids;
  for (const v1::PinSummary& pin : store.pins()) {
    ids.push_back(pin.id());
    if (!absl::StartsWith(pin.id(), beginning)) {
      continue;
    }
    if (chosen != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("pins ", chosen->id(), " and ", pin.id(), " both begin with ", beginning));
    }
    chosen = &pin;
  }
  if (chosen == nullptr) {
    return absl::NotFoundError(absl::StrCat(session::DescribeName(name), " has no pin ", beginning,
                                            "; ", ids.empty() ? "it has none" : "it has ",
                                            absl::StrJoin(ids, ", ")));
  }
  return *chosen;
}

}  // namespace

grpc::Status AdminService::Status(grpc::ServerContext*, const v1::StatusRequest*,
                                  v1::StatusResponse* response) {
  *response = ReportStatus(sources_);
  return grpc::Status::OK;
}

grpc::Status AdminService::List(grpc::ServerContext*, const v1::ListRequest*,
                                v1::ListResponse* response) {
  return Answer(ListAll(), response);
}

absl::StatusOr<v1::ListResponse> AdminService::ListAll() const {
  v1::ListResponse response;
  for (const session::StateDirectory& directory : *sources_.directories) {
    MOMENT_ASSIGN_OR_RETURN(std::vector<v1::StoreSummary> stores,
                            store::ListStores(files_, *directory.engine, directory.path));
    for (v1::StoreSummary& summary : stores) {
      if (const auto session = sessions_.FindByName(summary.name())) {
        summary.set_session(session->id());
        // Its records change under the reader; the session knows where it stands.
        summary.set_sequence(session->Status().committed_sequence());
        summary.clear_problem();
        *summary.mutable_pins() = session->Status().pins();
      }
      *response.add_stores() = std::move(summary);
    }
  }
  return response;
}

absl::StatusOr<AdminService::Place> AdminService::Find(const v1::StoreName& name) const {
  for (const session::StateDirectory& directory : *sources_.directories) {
    std::string path = store::StoreDirectory(directory.path, name);
    if (files_.Stat(path).ok()) {
      return Place{&directory, std::move(path)};
    }
  }
  return absl::NotFoundError(
      absl::StrCat("there is no store of ", session::DescribeName(name), " in this daemon"));
}

absl::Status AdminService::WhileUnchanged(const v1::StoreName& name, const std::string& kind,
                                          const std::function<absl::Status()>& work) const {
  if (const std::shared_ptr<session::Session> session = sessions_.FindByName(name)) {
    return session->RunAlone(kind, work);
  }
  MOMENT_RETURN_IF_ERROR(work());
  if (sessions_.FindByName(name) != nullptr) {
    return absl::AbortedError(
        absl::StrCat(session::DescribeName(name), " was opened during the ", kind, ": ask again"));
  }
  return absl::OkStatus();
}

grpc::Status AdminService::Describe(grpc::ServerContext*, const v1::DescribeRequest* request,
                                    v1::DescribeResponse* response) {
  return Answer(DescribeStore(request->name()), response);
}

absl::StatusOr<v1::DescribeResponse> AdminService::DescribeStore(const v1::StoreName& name) const {
  MOMENT_ASSIGN_OR_RETURN(const Place place, Find(name));
  v1::DescribeResponse response;
  MOMENT_RETURN_IF_ERROR(WhileUnchanged(name, "describe", [&]() -> absl::Status {
    MOMENT_ASSIGN_OR_RETURN(response,
                            store::ReadStore(files_, *place.directory->engine, place.path));
    return absl::OkStatus();
  }));
  if (const auto session = sessions_.FindByName(name)) {
    response.mutable_summary()->set_session(session->id());
  }
  return response;
}

grpc::Status AdminService::Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                                  grpc::ServerWriter<v1::VerifyResponse>* writer) {
  return ToGrpc(VerifyStore(request->name(), *context, *writer));
}

absl::Status AdminService::VerifyStore(const v1::StoreName& name, grpc::ServerContext& context,
                                       grpc::ServerWriter<v1::VerifyResponse>& writer) const {
  MOMENT_ASSIGN_OR_RETURN(const Place place, Find(name));
  v1::VerifyResponse last;
  store::VerifyOptions options;
  options.cancelled = [&context] { return context.IsCancelled(); };
  options.progress = [&](uint64_t bytes_done, uint64_t bytes_total) {
    v1::VerifyResponse response;
    response.set_bytes_done(bytes_done);
    response.set_bytes_total(bytes_total);
    writer.Write(response);
    last = std::move(response);
  };
  MOMENT_RETURN_IF_ERROR(WhileUnchanged(name, "verify", [&]() -> absl::Status {
    MOMENT_ASSIGN_OR_RETURN(
        std::vector<v1::VerifyProblem> problems,
        store::VerifyStore(files_, *place.directory->engine, workers_, place.path, options));
    for (v1::VerifyProblem& problem : problems) {
      *last.add_problems() = std::move(problem);
    }
    return absl::OkStatus();
  }));
  last.set_done(true);
  writer.Write(last);
  return absl::OkStatus();
}

grpc::Status AdminService::Compact(grpc::ServerContext*, const v1::CompactRequest*,
                                   grpc::ServerWriter<v1::CompactResponse>*) {
  return Unimplemented("Compact", "a store holds its three images and no more");
}

grpc::Status AdminService::Drop(grpc::ServerContext*, const v1::DropRequest* request,
                                v1::DropResponse* response) {
  if (request->pin().empty()) {
    return Unimplemented("Drop of a store or save", "stop the daemon and remove its directory");
  }
  return Answer(DropPin(request->name(), request->pin()), response);
}

absl::StatusOr<v1::DropResponse> AdminService::DropPin(const v1::StoreName& name,
                                                       const std::string& pin) const {
  MOMENT_ASSIGN_OR_RETURN(const Place place, Find(name));
  const std::shared_ptr<session::Session> session = sessions_.FindByName(name);
  v1::StoreSummary summary;
  if (session != nullptr) {
    *summary.mutable_pins() = session->Status().pins();
  } else {
    MOMENT_ASSIGN_OR_RETURN(v1::DescribeResponse described,
                            store::ReadStore(files_, *place.directory->engine, place.path));
    summary = std::move(*described.mutable_summary());
  }
  MOMENT_ASSIGN_OR_RETURN(const v1::PinSummary chosen, ChoosePin(name, summary, pin));
  v1::DropResponse response;
  response.set_pin(chosen.id());
  response.set_freed_bytes(chosen.held_bytes());
  if (session != nullptr) {
    MOMENT_ASSIGN_OR_RETURN(const uint64_t freed_bytes, session->DropPin(chosen.id()));
    response.set_freed_bytes(freed_bytes);
  } else {
    // Left by a daemon that was killed. An Open of the store that comes now drops it as well.
    MOMENT_RETURN_IF_ERROR(store::RemovePin(files_, place.path, chosen.id()));
  }
  return response;
}

grpc::Status AdminService::Stats(grpc::ServerContext*, const v1::StatsRequest*,
                                 v1::StatsResponse* response) {
  response->set_prometheus_text(Metrics(sources_).Text());
  return grpc::Status::OK;
}

grpc::Status AdminService::SetLogLevel(grpc::ServerContext*, const v1::SetLogLevelRequest* request,
                                       v1::SetLogLevelResponse* response) {
  const spdlog::level::level_enum level = spdlog::level::from_str(request->level());
  if (level == spdlog::level::off && request->level() != "off") {
    return ToGrpc(absl::InvalidArgumentError(
        absl::StrCat("\"", request->level(),
                     "\" is not one of trace, debug, info, warn, error, critical, off")));
  }
  const spdlog::string_view_t previous = spdlog::level::to_string_view(spdlog::get_level());
  response->set_previous(std::string(previous.data(), previous.size()));
  spdlog::set_level(level);
  return grpc::Status::OK;
}

}  // namespace moment::service
