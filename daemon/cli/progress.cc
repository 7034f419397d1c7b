#include "daemon/cli/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/cli/table.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval(100);
constexpr std::chrono::seconds kLineInterval(5);
constexpr uint64_t kBarWidth = 24;

std::chrono::nanoseconds SteadyNow() { return std::chrono::steady_clock::now().time_since_epoch(); }

double FractionOf(const ProgressSample& sample) {
  if (sample.total_bytes == 0) {
    return 1;
  }
  return std::min(1.0,
                  static_cast<double>(sample.done_bytes) / static_cast<double>(sample.total_bytes));
}

}  // namespace

Progress::Progress(Console& console, std::string label)
    : Progress(console, std::move(label), SteadyNow) {}

Progress::Progress(Console& console, std::string label, Clock clock)
    : console_(console),
      label_(Printable(label)),
      clock_(std::move(clock)),
      started_(clock_()),
      shown_(started_) {}

Progress::~Progress() { Clear(); }

void Progress::Update(uint64_t done_bytes, uint64_t total_bytes) {
  const std::chrono::nanoseconds now = clock_();
  const bool terminal = console_.err_is_terminal;
  const std::chrono::nanoseconds interval = terminal ? kRedrawInterval : kLineInterval;
  if (now - shown_ < interval) {
    return;
  }
  shown_ = now;
  const ProgressSample sample{
      .done_bytes = done_bytes, .total_bytes = total_bytes, .elapsed_seconds = elapsed_seconds()};
  const std::string text = absl::StrCat(label_, "  ", ProgressText(sample));
  if (!terminal) {
    console_.err << text << "\n" << std::flush;
    return;
  }
  const std::string line = absl::StrCat(ProgressBar(sample, kBarWidth), "  ", text);
  // A line that wraps could not be redrawn.
  console_.err << "\r\x1b[K" << Shorten(line, std::max<uint64_t>(console_.terminal_columns, 2) - 1)
               << std::flush;
  drawn_ = true;
}

double Progress::elapsed_seconds() const {
  return std::chrono::duration<double>(clock_() - started_).count();
}

void Progress::Clear() {
  if (std::exchange(drawn_, false)) {
    console_.err << "\r\x1b[K" << std::flush;
  }
}

std::string ProgressText(const ProgressSample& sample) {
  const double fraction = FractionOf(sample);
  const double rate = sample.elapsed_seconds > 0
                          ? static_cast<double>(sample.done_bytes) / sample.elapsed_seconds
                          : 0;
  std::string text = absl::StrFormat("%s of %s (%d%%), %s", HumanBytes(sample.done_bytes),
                                     HumanBytes(sample.total_bytes),
                                     static_cast<int>(fraction * 100), HumanRate(rate));
  if (rate > 0 && sample.done_bytes < sample.total_bytes) {
    const double left = static_cast<double>(sample.total_bytes - sample.done_bytes) / rate;
    absl::StrAppend(&text, ", ", HumanSeconds(left), " left");
  }
  return text;
}

std::string ProgressBar(const ProgressSample& sample, uint64_t width) {
  if (width < 2) {
    return "";
  }
  const uint64_t inner = width - 2;
  const uint64_t filled = static_cast<uint64_t>(FractionOf(sample) * static_cast<double>(inner));
  std::string bar(filled, '=');
  if (filled < inner) {
    bar += '>';
    bar.append(inner - filled - 1, ' ');
  }
  return absl::StrCat("[", bar, "]");
}

}  // namespace moment::cli
