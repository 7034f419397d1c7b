// A small trainer for tests, over the public C++ wrapper: its gradients follow from the sequence
// alone, so two runs of the same steps must end with the same bits.
//
//   e2e_trainer SOCKET STATE_OUT STEPS RESUME(ask|never|auto|must) [MILLISECONDS_PER_STEP [JOB
//   [RANK]]]
//
// Each rank has gradients of its own.
// Prints "at N" when it stands at sequence N, and writes its parameters to STATE_OUT at the end.
// Exits with 3 if the store was rewound, with 4 on any other error.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "moment/moment.hpp"

namespace {

constexpr uint64_t kElements[] = {1000, 1, 300000, 0, 65536};

struct Arguments {
  std::string socket;
  std::string out;
  uint64_t steps = 0;
  std::string resume;
  int pause_ms = 0;
  std::string job = "e2e";
  uint32_t rank = 0;
};

float Mixed(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + 1;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBu;
  x ^= x >> 29;
  return static_cast<float>(static_cast<double>(x >> 40) / 16777216.0 - 0.5);
}

void Fill(std::vector<std::vector<float>>& tensors, uint64_t seed) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t k = 0; k < tensors[i].size(); ++k) {
      tensors[i][k] = Mixed(seed * 16 + i, k);
    }
  }
}

moment::OpenOptions Options(const Arguments& arguments) {
  moment::OpenOptions options;
  options.job = arguments.job;
  options.rank = arguments.rank;
  options.socket = arguments.socket;
  options.bucket_elements = 100000;
  options.resume = arguments.resume == "must"    ? MOMENT_RESUME_MUST
                   : arguments.resume == "never" ? MOMENT_RESUME_NEVER
                   : arguments.resume == "auto"  ? MOMENT_RESUME_AUTO
                                                 : MOMENT_RESUME_ASK;
  for (size_t i = 0; i < std::size(kElements); ++i) {
    moment::Tensor tensor;
    tensor.name = "weight" + std::to_string(i);
    tensor.shape = {kElements[i]};
    options.tensors.push_back(tensor);
  }
  return options;
}

moment::Step StepOf(const std::vector<std::vector<float>>& gradients, uint64_t sequence) {
  moment::Step step;
  moment::Group group;
  group.lr = 1e-2 / (1.0 + 0.01 * static_cast<double>(sequence));
  group.weight_decay = 0.01;
  group.tensors = {{0, static_cast<uint32_t>(gradients.size())}};
  step.groups = {group};
  for (const std::vector<float>& gradient : gradients) {
    step.gradients.push_back(gradient.data());
  }
  return step;
}

int Train(const Arguments& arguments) {
  moment::Store store(Options(arguments));
  std::vector<std::vector<float>> parameters;
  for (const uint64_t elements : kElements) {
    parameters.emplace_back(elements);
  }
  std::vector<std::vector<float>> gradients = parameters;
  std::vector<void*> pointers;
  for (std::vector<float>& parameter : parameters) {
    pointers.push_back(parameter.data());
  }
  store.Attach(pointers);
  const uint64_t seed = arguments.rank * 1000;
  uint64_t sequence = store.Info().sequence;
  if (store.Commits().empty() || arguments.resume == "never") {
    Fill(parameters, seed);
    store.RefreshAll(arguments.resume == "never");
    sequence = 0;
  } else {
    store.Materialize();
  }
  std::cout << "at " << sequence << std::endl;
  while (sequence < arguments.steps) {
    ++sequence;
    Fill(gradients, seed + sequence);
    store.Run(StepOf(gradients, sequence));
    std::cout << "at " << sequence << std::endl;
    std::this_thread::sleep_for(std::chrono::milliseconds(arguments.pause_ms));
  }
  std::ofstream out(arguments.out, std::ios::binary);
  for (const std::vector<float>& parameter : parameters) {
    out.write(reinterpret_cast<const char*>(parameter.data()),
              static_cast<std::streamsize>(parameter.size() * sizeof(float)));
  }
  out.close();
  store.Close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    return 2;
  }
  Arguments arguments = {argv[1], argv[2], std::strtoull(argv[3], nullptr, 10), argv[4]};
  if (argc > 5) {
    arguments.pause_ms = std::atoi(argv[5]);
  }
  if (argc > 6) {
    arguments.job = argv[6];
  }
  if (argc > 7) {
    arguments.rank = static_cast<uint32_t>(std::atoi(argv[7]));
  }
  try {
    return Train(arguments);
  } catch (const moment::Rewound& rewound) {
    std::cout << "rewound to " << rewound.sequence() << std::endl;
    return 3;
  } catch (const std::exception& error) {
    std::cout << "error: " << error.what() << std::endl;
    return 4;
  }
}
