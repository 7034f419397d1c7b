// Steps that torch and Transformer Engine computed on a GPU
// (tests/device/golden/make_adam_cuda.py), so that the CUDA profiles stand where there is no GPU.
#include <bit>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/adam_reference.h"
#include "cuda/adam_scalars.h"
#include "cuda/power_float.h"
#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

using device::AdamElement;
using device::Profile;

struct GoldenElement {
  AdamElement before;
  float gradient = 0;
  AdamElement after;
};

struct GoldenCase {
  std::string line;
  Profile profile = Profile::kTorchCuda;
  device::Hyperparameters hyperparameters;
  uint64_t t = 0;
  std::vector<GoldenElement> elements;
  // Of te: what the GPU made of these arguments, by their bits.
  std::map<uint32_t, float> reciprocals;
  std::map<uint32_t, float> square_roots;
};

float ParseBits(std::istringstream& stream) {
  std::string text;
  stream >> text;
  return std::bit_cast<float>(static_cast<uint32_t>(std::stoul(text, nullptr, 16)));
}

double ParseDouble(std::istringstream& stream) {
  std::string text;
  stream >> text;
  return std::strtod(text.c_str(), nullptr);
}

Profile ParseProfile(const std::string& name) {
  static const std::map<std::string, Profile> profiles = {
      {"torch-cuda", Profile::kTorchCuda},
      {"torch-cuda-foreach", Profile::kTorchCudaForeach},
      {"torch-cuda-210", Profile::kTorchCuda210},
      {"te", Profile::kTe},
  };
  return profiles.at(name);
}

// As MakeTeScalars, whose arguments of the reciprocals these are.
uint32_t CorrectionBits(double beta, uint64_t t) {
  device::Hyperparameters hyperparameters;
  hyperparameters.beta1 = beta;
  const TeScalars scalars = MakeTeScalars(hyperparameters, t);
  return std::bit_cast<uint32_t>(scalars.bias_correction1);
}

GoldenCase ParseCase(const std::string& line) {
  GoldenCase golden;
  golden.line = line;
  std::istringstream stream(line);
  std::string word;
  std::string profile;
  std::string mode;
  device::Hyperparameters& h = golden.hyperparameters;
  stream >> word >> profile >> mode >> h.maximize;
  golden.profile = ParseProfile(profile);
  h.mode = mode == "adam" ? device::AdamMode::kAdam : device::AdamMode::kAdamW;
  h.lr = ParseDouble(stream);
  h.beta1 = ParseDouble(stream);
  h.beta2 = ParseDouble(stream);
  h.eps = ParseDouble(stream);
  h.weight_decay = ParseDouble(stream);
  stream >> golden.t;
  if (golden.profile == Profile::kTe) {
    golden.reciprocals[CorrectionBits(h.beta1, golden.t)] = ParseBits(stream);
    golden.reciprocals[CorrectionBits(h.beta2, golden.t)] = ParseBits(stream);
  }
  return golden;
}

AdamElement ParseElement(std::istringstream& stream) {
  AdamElement element;
  element.main = ParseBits(stream);
  element.exp_avg = ParseBits(stream);
  element.exp_avg_sq = ParseBits(stream);
  return element;
}

void ParseElementLine(const std::string& line, GoldenCase& golden) {
  std::istringstream stream(line);
  GoldenElement element;
  element.before = ParseElement(stream);
  element.gradient = ParseBits(stream);
  element.after = ParseElement(stream);
  golden.elements.push_back(element);
  if (golden.profile == Profile::kTe) {
    const auto root_of = std::bit_cast<uint32_t>(ParseBits(stream));
    golden.square_roots[root_of] = ParseBits(stream);
    const auto reciprocal_of = std::bit_cast<uint32_t>(ParseBits(stream));
    golden.reciprocals[reciprocal_of] = ParseBits(stream);
  }
}

struct Power {
  float base, exponent, result;
};

struct Golden {
  std::vector<Power> powers;
  std::vector<GoldenCase> cases;
};

Golden Read() {
  Golden golden;
  std::ifstream file(MOMENT_GOLDEN_ADAM_CUDA);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("power ", 0) == 0) {
      std::istringstream stream(line.substr(6));
      const float base = ParseBits(stream);
      const float exponent = ParseBits(stream);
      golden.powers.push_back({base, exponent, ParseBits(stream)});
    } else if (line.rfind("case ", 0) == 0) {
      golden.cases.push_back(ParseCase(line));
    } else {
      ParseElementLine(line, golden.cases.back());
    }
  }
  return golden;
}

// The case that the approximations below belong to. An argument that the GPU did not have gives 0,
// and so another result than the GPU's.
const GoldenCase* case_at_work = nullptr;

float Recorded(const std::map<uint32_t, float>& results, float argument) {
  const auto found = results.find(std::bit_cast<uint32_t>(argument));
  return found == results.end() ? 0.0f : found->second;
}

const Approximations kRecorded = {
    [](float x) { return Recorded(case_at_work->reciprocals, x); },
    [](float x) { return Recorded(case_at_work->square_roots, x); },
};

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST_CASE("CUDA profiles: have the bits that torch and Transformer Engine had", "[cuda]") {
  const Golden golden = Read();
  REQUIRE(golden.cases.size() == 4 * 48 - 8);  // less what torch has no one sequence for
  for (const GoldenCase& each : golden.cases) {
    INFO(each.line);
    REQUIRE(each.elements.size() == 23);
    case_at_work = &each;
    for (const GoldenElement& element : each.elements) {
      const AdamElement after =
          AdamUpdate(each.profile, each.hyperparameters, each.t, element.gradient, element.before,
                     each.profile == Profile::kTe ? kRecorded : ExactApproximations());
      CHECK(SameBits(after.main, element.after.main));
      CHECK(SameBits(after.exp_avg, element.after.exp_avg));
      CHECK(SameBits(after.exp_avg_sq, element.after.exp_avg_sq));
    }
  }
}

TEST_CASE("PowerFloat: has the bits that the GPU had", "[cuda]") {
  const Golden golden = Read();
  REQUIRE(golden.powers.size() == 200);
  for (const Power& power : golden.powers) {
    INFO(power.base << " to the power of " << power.exponent);
    CHECK(SameBits(PowerFloat(power.base, power.exponent, ExactApproximations().reciprocal),
                   power.result));
  }
}

}  // namespace
}  // namespace moment::cuda
