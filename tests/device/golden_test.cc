// Steps that torch computed (golden/make_adam.py), so that the profiles stand without torch.
#include <bit>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/device/kernels.h"
#include "tests/support/catch.h"

namespace moment::device {
namespace {

struct GoldenCase {
  std::string line;
  Profile profile = Profile::kTorchCpu;
  Hyperparameters hyperparameters;
  uint64_t t = 0;
  std::vector<float> columns[7];  // p, m, v, g before; p, m, v after
};

double ParseDouble(std::istringstream& stream) {
  std::string text;
  stream >> text;
  return std::strtod(text.c_str(), nullptr);
}

GoldenCase ParseCase(const std::string& line) {
  GoldenCase golden;
  golden.line = line;
  std::istringstream stream(line);
  std::string word;
  std::string profile;
  std::string mode;
  stream >> word >> profile >> mode >> golden.hyperparameters.maximize;
  golden.profile = profile == "torch-cpu" ? Profile::kTorchCpu : Profile::kTorchCpuIeee;
  golden.hyperparameters.mode = mode == "adam" ? AdamMode::kAdam : AdamMode::kAdamW;
  golden.hyperparameters.lr = ParseDouble(stream);
  golden.hyperparameters.beta1 = ParseDouble(stream);
  golden.hyperparameters.beta2 = ParseDouble(stream);
  golden.hyperparameters.eps = ParseDouble(stream);
  golden.hyperparameters.weight_decay = ParseDouble(stream);
  stream >> golden.t;
  return golden;
}

std::vector<GoldenCase> ReadCases() {
  std::ifstream file(MOMENT_GOLDEN_ADAM);
  std::vector<GoldenCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("case ", 0) == 0) {
      cases.push_back(ParseCase(line));
      continue;
    }
    std::istringstream stream(line);
    stream >> std::hex;
    for (std::vector<float>& column : cases.back().columns) {
      uint32_t bits = 0;
      stream >> bits;
      column.push_back(std::bit_cast<float>(bits));
    }
  }
  return cases;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) {
      return false;
    }
  }
  return a.size() == b.size();
}

TEST_CASE("Adam: has the bits that torch had", "[device]") {
  const std::vector<GoldenCase> cases = ReadCases();
  REQUIRE(cases.size() == 96);
  for (const GoldenCase& golden : cases) {
    INFO(golden.line);
    REQUIRE(golden.columns[6].size() == 23);
    for (InstructionSet set :
         {InstructionSet::kScalar, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
      if (!Available(set)) {
        continue;
      }
      std::vector<float> p = golden.columns[0];
      std::vector<float> m = golden.columns[1];
      std::vector<float> v = golden.columns[2];
      std::vector<float> parameter(p.size());
      AdamArrays arrays;
      arrays.main_in = arrays.main_out = p.data();
      arrays.exp_avg_in = arrays.exp_avg_out = m.data();
      arrays.exp_avg_sq_in = arrays.exp_avg_sq_out = v.data();
      arrays.gradient = golden.columns[3].data();
      arrays.parameter = parameter.data();
      arrays.count = p.size();
      FindAdamKernel(set, {})(MakeAdamConstants(golden.hyperparameters, golden.t, golden.profile),
                              arrays);
      CHECK(SameBits(p, golden.columns[4]));
      CHECK(SameBits(m, golden.columns[5]));
      CHECK(SameBits(v, golden.columns[6]));
      CHECK(SameBits(parameter, golden.columns[4]));
    }
  }
}

}  // namespace
}  // namespace moment::device
