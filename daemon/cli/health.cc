// momentctl health: asks the standard health service; the exit code is the answer.
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/channel.h"
#include "daemon/cli/command.h"
#include "daemon/cli/json_writer.h"
#include "daemon/cli/message_json.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace moment::cli {
namespace {

namespace health = grpc::health::v1;

struct HealthOptions {
  CommonOptions common;
  std::string service;
  std::string address;  // "": by Unix socket
};

struct Peer {
  std::shared_ptr<grpc::Channel> channel;
  std::string name;
};

// admin.sock, or momentd.sock where the first is not there or not ours to use: a probe often runs
// as the trainer's user.
absl::StatusOr<Peer> ConnectBySocket(const CommonOptions& options) {
  const std::string admin_path = options.SocketPath(kAdminSocketName);
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> admin =
      ConnectUnix(admin_path, options.timeout());
  if (admin.ok()) {
    return Peer{*admin, admin_path};
  }
  const std::string trainer_path = options.SocketPath(kTrainerSocketName);
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> trainer =
      ConnectUnix(trainer_path, options.timeout());
  if (trainer.ok()) {
    return Peer{*trainer, trainer_path};
  }
  return admin.status();
}

absl::StatusOr<Peer> Connect(const HealthOptions& options) {
  if (options.address.empty()) {
    return ConnectBySocket(options.common);
  }
  MOMENT_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                          ConnectTcp(options.address, options.common.timeout()));
  return Peer{std::move(channel), options.address};
}

absl::StatusOr<health::HealthCheckResponse> Check(const Peer& peer, const HealthOptions& options) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.common.timeout()));
  health::HealthCheckRequest request;
  request.set_service(options.service);
  health::HealthCheckResponse response;
  const grpc::Status status =
      health::Health::NewStub(peer.channel)->Check(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return absl::NotFoundError(
        absl::StrCat("momentd at ", peer.name, " has no health service \"", options.service,
                     "\": \"\", \"liveness\", \"readiness\" and the paths of its state directories "
                     "are"));
  }
  MOMENT_RETURN_IF_ERROR(FromGrpc(status, peer.name));
  return response;
}

// The protocol's own word in lower case: "serving", "not_serving", "unknown", "service_unknown".
std::string StatusText(health::HealthCheckResponse::ServingStatus status) {
  const std::string name = health::HealthCheckResponse::ServingStatus_Name(status);
  return name.empty() ? "unknown" : absl::AsciiStrToLower(name);
}

std::string Document(const HealthOptions& options, const Peer& peer, const std::string& status) {
  JsonWriter writer;
  writer.BeginObject();
  writer.Key("schema_version");
  writer.Signed(kJsonSchemaVersion);
  writer.Key("service");
  writer.String(options.service);
  writer.Key("address");
  writer.String(peer.name);
  writer.Key("status");
  writer.String(status);
  writer.EndObject();
  return std::move(writer).Take();
}

Outcome RunHealth(const HealthOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(const Peer peer, Connect(options));
  MOMENT_ASSIGN_OR_RETURN(const health::HealthCheckResponse response, Check(peer, options));
  const bool serving = response.status() == health::HealthCheckResponse::SERVING;
  const std::string status = StatusText(response.status());
  if (options.common.json) {
    context.console.out << Document(options, peer, status);
  } else {
    context.console.out << Paint(context.console, serving ? Colour::kGreen : Colour::kRed, status)
                        << "\n";
  }
  return serving ? ExitCode::kFine : ExitCode::kFailed;
}

}  // namespace

void AddHealthCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<HealthOptions>();
  CLI::App* command =
      app.add_subcommand("health", "Ask for the daemon's health; exit 0 means it serves");
  AddCommonOptions(*command, options->common);
  command->add_option("--service", options->service,
                      "\"\" (the daemon, default), liveness, readiness, or a state directory");
  command->add_option("--address", options->address, "host:port of the daemon's TCP health port");
  command->callback([options, &invocation] {
    invocation.run = [options](Context& context) { return RunHealth(*options, context); };
  });
}

}  // namespace moment::cli
