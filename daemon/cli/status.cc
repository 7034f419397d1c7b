// momentctl status: the daemon, its state directories, sessions, devices and pool.
#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/admin_client.h"
#include "daemon/cli/command.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/pin_table.h"
#include "daemon/cli/table.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

Cell HealthCell(const std::string& health) {
  return Cell(health, health == "serving" ? Colour::kGreen : Colour::kRed);
}

std::string WithReason(const std::string& value, const std::string& reason) {
  return reason.empty() ? value : absl::StrCat(value, " (", reason, ")");
}

std::string MemoryText(const v1::GpuMemory& memory) {
  return absl::StrCat("context ",
                      memory.has_context_bytes() ? HumanBytes(memory.context_bytes()) : "unknown",
                      ", staging ", HumanBytes(memory.staging_bytes()), " (",
                      HumanBytes(memory.staging_used_bytes()), " in use)");
}

void PrintDaemon(const v1::StatusResponse& status, Console& console) {
  Facts facts;
  facts.Add("momentd", absl::StrCat(status.version(), ", pid ", status.pid(), ", up ",
                                    HumanSeconds(status.uptime_seconds())));
  facts.Add("state", status.draining() ? "draining: it ends once its sessions have" : "running",
            status.draining() ? Colour::kYellow : Colour::kGreen);
  const v1::PoolStatus& pool = status.pool();
  facts.Add("pool",
            absl::StrCat(HumanBytes(pool.allocated_bytes()), " of ",
                         HumanBytes(pool.budget_bytes()), " pinned; frames: ", pool.frames(), " (",
                         pool.frames_free(), " free, ", pool.frames_clean(), " clean, ",
                         pool.frames_dirty(), " dirty, ", pool.frames_busy(), " busy)"));
  for (const v1::DeviceStatus& device : status.devices()) {
    facts.Add("device", WithReason(device.name(), device.detail()));
    if (device.has_memory()) {
      facts.Add("  memory", MemoryText(device.memory()));
    }
  }
  facts.Print(console);
}

void PrintStateDirectories(const v1::StatusResponse& status, Console& console) {
  Table table({{"STATE DIRECTORY"},
               {"FILE SYSTEM"},
               {"ENGINE"},
               {"DIRECT I/O"},
               {"FREE", Align::kRight},
               {"READ", Align::kRight},
               {"WRITTEN", Align::kRight},
               {"OLDEST I/O", Align::kRight},
               {"HEALTH"}});
  for (const v1::StateDirectoryStatus& directory : status.state_directories()) {
    table.AddRow(
        {directory.path(),
         absl::StrCat(directory.file_system(), directory.is_volatile() ? ", volatile" : ""),
         directory.io_engine(), directory.direct_io() ? "yes" : "no",
         HumanBytes(directory.free_bytes()), HumanBytes(directory.bytes_read()),
         HumanBytes(directory.bytes_written()),
         directory.oldest_io_seconds() > 0 ? HumanSeconds(directory.oldest_io_seconds()) : "-",
         HealthCell(directory.health())});
  }
  if (!table.empty()) {
    console.out << "\n";
  }
  table.Print(console);
}

// Nothing degrades in silence: each reason is a line of its own.
void PrintReasons(const v1::StatusResponse& status, Console& console) {
  for (const v1::GpuNotice& notice : status.gpu_notices()) {
    console.out << Printable(absl::StrCat(notice.uuid().empty() ? "GPU" : notice.uuid(),
                                          notice.unused() ? " is not used: " : ": ", notice.text()))
                << "\n";
  }
  for (const v1::StateDirectoryStatus& directory : status.state_directories()) {
    if (!directory.io_engine_reason().empty()) {
      console.out << Printable(absl::StrCat(directory.path(), ": engine ", directory.io_engine(),
                                            ": ", directory.io_engine_reason()))
                  << "\n";
    }
    if (!directory.direct_io() && !directory.direct_io_reason().empty()) {
      console.out << Printable(absl::StrCat(directory.path(),
                                            ": no direct I/O: ", directory.direct_io_reason()))
                  << "\n";
    }
  }
}

void PrintSessions(const v1::StatusResponse& status, Console& console) {
  Table table({{"SESSION"},
               {"STORE"},
               {"PID", Align::kRight},
               {"UID", Align::kRight},
               {"DEVICE"},
               {"TRANSPORT"},
               {"ACTIVITY"},
               {"SEQUENCE", Align::kRight},
               {"COMMITTED", Align::kRight},
               {"LAST STEP", Align::kRight},
               {"STATE", Align::kRight},
               {"IN POOL", Align::kRight},
               {"AGE", Align::kRight}});
  for (const v1::SessionStatus& session : status.sessions()) {
    table.AddRow({session.session(), NameText(session.name()), absl::StrCat(session.pid()),
                  absl::StrCat(session.uid()), session.device(), session.transport(),
                  session.activity(), absl::StrCat(session.sequence()),
                  absl::StrCat(session.committed_sequence()),
                  session.has_last_step() ? HumanSeconds(session.last_step().total_seconds()) : "-",
                  HumanBytes(session.state_bytes()), HumanBytes(session.resident_bytes()),
                  HumanSeconds(session.age_seconds())});
  }
  if (!table.empty()) {
    console.out << "\n";
  }
  table.Print(console);
}

void PrintPins(const v1::StatusResponse& status, Console& console) {
  PinTable table;
  for (const v1::SessionStatus& session : status.sessions()) {
    for (const v1::PinSummary& pin : session.pins()) {
      table.Add(NameText(session.name()), pin);
    }
  }
  table.Print(console);
}

Outcome RunStatus(const CommonOptions& options, Context& context) {
  MOMENT_ASSIGN_OR_RETURN(
      const std::unique_ptr<AdminClient> client,
      AdminClient::Connect(options.SocketPath(kAdminSocketName), options.timeout()));
  MOMENT_ASSIGN_OR_RETURN(const v1::StatusResponse status, client->Status());
  if (options.json) {
    context.console.out << MessageDocument(status);
    return ExitCode::kFine;
  }
  PrintDaemon(status, context.console);
  PrintStateDirectories(status, context.console);
  PrintReasons(status, context.console);
  PrintSessions(status, context.console);
  PrintPins(status, context.console);
  return ExitCode::kFine;
}

}  // namespace

void AddStatusCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command =
      app.add_subcommand("status", "Show the daemon, its state directories and its sessions");
  AddCommonOptions(*command, *options);
  command->callback([options, &invocation] {
    invocation.run = [options](Context& context) { return RunStatus(*options, context); };
  });
}

}  // namespace moment::cli
