// A trainer in C++: a line is fitted to points by Adam, with the optimizer's state in momentd.
//
//   example_trainer [socket] [steps]
//
// Kill it and run it again: it goes on at its last finished step.

#include <moment/moment.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr size_t kPoints = 256;

// The mean squared error of slope * x + offset against 3 x - 2, and its gradient.
float Loss(const std::vector<float>& line, std::vector<float>& gradient) {
  float loss = 0;
  gradient.assign(2, 0.0f);
  for (size_t i = 0; i < kPoints; ++i) {
    const float x = static_cast<float>(i) / kPoints - 0.5f;
    const float error = line[0] * x + line[1] - (3 * x - 2);
    loss += error * error / kPoints;
    gradient[0] += 2 * error * x / kPoints;
    gradient[1] += 2 * error / kPoints;
  }
  return loss;
}

void Train(const std::string& socket, uint64_t steps) {
  moment::OpenOptions options;
  options.job = "example-line";
  options.socket = socket;
  options.tensors = {{"line", {2}}};
  options.resume = MOMENT_RESUME_AUTO;
  moment::Store store(options);

  std::vector<float> line = {0, 0};
  std::vector<float> gradient;
  store.Attach({line.data()});
  if (store.Info().empty) {
    store.RefreshAll();
  } else {
    store.Materialize();
    std::printf("resumed after step %llu\n",
                static_cast<unsigned long long>(store.Info().sequence));
  }

  moment::Step step;
  step.groups.resize(1);
  step.groups[0].lr = 0.05;
  step.groups[0].tensors = {{0, 1}};
  while (store.Info().sequence < steps) {
    const float loss = Loss(line, gradient);
    step.gradients = {gradient.data()};
    const moment_statistics statistics = store.Run(step);
    if (statistics.sequence % 50 == 0) {
      std::printf("step %llu loss %.6f line %.4f x + %.4f\n",
                  static_cast<unsigned long long>(statistics.sequence), static_cast<double>(loss),
                  static_cast<double>(line[0]), static_cast<double>(line[1]));
    }
  }
  store.Close();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Train(argc > 1 ? argv[1] : "", argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 500);
  } catch (const moment::Rewound& rewound) {
    std::fprintf(stderr, "the store was set back to step %llu: run this again\n",
                 static_cast<unsigned long long>(rewound.sequence()));
    return 1;
  } catch (const moment::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
