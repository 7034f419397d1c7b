#include "daemon/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace moment {
namespace {

// Whether the standard error stream is the journal's, as systemd says it.
bool IsJournal() {
  const char* const variable = std::getenv("JOURNAL_STREAM");
  struct stat info = {};
  return variable != nullptr && ::fstat(2, &info) == 0 &&
         absl::StrCat(info.st_dev, ":", info.st_ino) == variable;
}

// "<6>" and so on, which the journal takes for the record's priority.
class PriorityFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const absl::string_view text = Text(message.level);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PriorityFlag>();
  }

 private:
  static absl::string_view Text(spdlog::level::level_enum level) {
    switch (level) {
      case spdlog::level::critical:
        return "<2>";
      case spdlog::level::err:
        return "<3>";
      case spdlog::level::warn:
        return "<4>";
      case spdlog::level::info:
        return "<6>";
      default:
        return "<7>";
    }
  }
};

// The payload as the inside of a JSON string.
class JsonPayloadFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    for (const char c : absl::string_view(message.payload.data(), message.payload.size())) {
      Append(c, out);
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonPayloadFlag>();
  }

 private:
  static void Append(char c, spdlog::memory_buf_t& out) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      const std::string escaped = absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
      out.append(escaped.data(), escaped.data() + escaped.size());
    } else {
      out.push_back(c);
    }
  }
};

std::unique_ptr<spdlog::formatter> MakeFormatter(const std::string& format) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PriorityFlag>('*').add_flag<JsonPayloadFlag>('&');
  if (format == "json") {
    formatter->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%&"})");
  } else {
    formatter->set_pattern(IsJournal() ? "%*%v" : "%Y-%m-%dT%H:%M:%S.%e%z level=%l %v");
  }
  return formatter;
}

}  // namespace

void SetUpLog(const std::string& level, const std::string& format) {
  auto logger = std::make_shared<spdlog::logger>("momentd",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(MakeFormatter(format));
  spdlog::set_default_logger(std::move(logger));
  SetLogLevel(level);
}

void SetLogLevel(const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); }

}  // namespace moment
