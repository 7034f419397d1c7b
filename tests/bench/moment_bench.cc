// moment-bench: measures what the parts reach beside their limits in the same run.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/bench/step_bench.h"

int main(int argc, char** argv) {
  CLI::App app{"Measures momentd's parts against the limits of this machine."};
  app.require_subcommand(1);
  CLI::App* step = app.add_subcommand("step", "Back-to-back steps of one store, from and to disk");
  moment::bench::StepBenchOptions options;
  bool json = false;
  step->add_option("--device", options.device, "host")->capture_default_str();
  step->add_option("--parameters", options.parameters, "Parameters of the store (200e6)")
      ->check(CLI::Range(1.0, 1e12));
  step->add_option("--state-dir", options.state_directory,
                   "Makes its directory below this one, and removes it at the end");
  step->add_option("--steps", options.steps, "Measured steps")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  step->add_option("--warm-up", options.warm_up, "Steps before")->capture_default_str();
  step->add_option("--host-memory", options.host_memory_bytes, "Budget of the frame pool, bytes")
      ->capture_default_str();
  step->add_option("--commit-every", options.commit_every, "0: on Flush alone")
      ->capture_default_str();
  step->add_option("--io-engine", options.engine, "auto, io_uring or threads")
      ->check(CLI::IsMember({"auto", "io_uring", "threads"}))
      ->capture_default_str();
  step->add_option("--io-depth", options.io_depth, "Transfers in flight")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  step->add_flag("--pins", options.pins, "Pin each step, and drop it after the next");
  step->add_flag("--json", json, "One JSON object on stdout");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto result = moment::bench::RunStepBench(options);
  if (!result.ok()) {
    std::fprintf(stderr, "moment-bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  if (json) {
    std::printf("%s\n", result->Json().c_str());
    return 0;
  }
  std::printf("step %.3f s (median), %.2f of the raw mixed rate of %.0f MB/s, %.2f x serial\n",
              moment::bench::Median(result->step_seconds), result->ratio_to_raw(),
              result->raw_bytes_per_s() / 1e6, result->speedup_over_serial());
  if (options.pins) {
    std::printf("pin %.1f ms, unpin %.3f ms (medians)\n",
                1e3 * moment::bench::Median(result->pin_seconds),
                1e3 * moment::bench::Median(result->unpin_seconds));
  }
  return 0;
}
