#include "daemon/device/kernels.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "daemon/device/adam_reference.h"
#include "daemon/device/float_conversion.h"
#include "daemon/device/square_root.h"
#include "tests/support/catch.h"

namespace moment::device {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

// A fixed seed unless the environment names one; printed with each failure.
uint64_t Seed() {
  const char* text = std::getenv("MOMENT_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20240607;
}

float RandomFloat(std::mt19937_64& random) {
  static constexpr std::array<uint32_t, 16> kSpecial = {
      0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
      0xffc12345, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
      0xff7fffff, 0x3f800000, 0x33000000, 0x477ff000};
  const uint64_t draw = random();
  if (draw % 37 == 0) {
    return std::bit_cast<float>(kSpecial[(draw >> 32) % kSpecial.size()]);
  }
  if (draw % 11 == 0) {
    return std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-9.0f, 2.0f);
  return normal(random) * std::pow(10.0f, exponent(random));
}

// `count` elements of `type`, `misalignment` bytes past an aligned address.
class Array {
 public:
  Array(DataType type, uint64_t count, uint64_t misalignment)
      : type_(type), count_(count), bytes_(count * SizeBytes(type) + 128, 0xa5) {
    const uint64_t address = reinterpret_cast<uint64_t>(bytes_.data());
    offset_ = (64 - address % 64) % 64 + misalignment;
  }

  void Fill(std::mt19937_64& random, bool non_negative) {
    for (uint64_t i = 0; i < count_; ++i) {
      const float drawn = RandomFloat(random);
      Set(i, non_negative ? std::fabs(drawn) : drawn);
    }
  }

  void Set(uint64_t i, float value) {
    if (type_ == DataType::kFloat32) {
      std::memcpy(data() + i * 4, &value, 4);
      return;
    }
    const uint16_t bits =
        type_ == DataType::kBFloat16 ? NarrowBFloat16(value) : NarrowFloat16(value);
    std::memcpy(data() + i * 2, &bits, 2);
  }

  float Get(uint64_t i) const {
    if (type_ == DataType::kFloat32) {
      float value;
      std::memcpy(&value, data() + i * 4, 4);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, data() + i * 2, 2);
    return type_ == DataType::kBFloat16 ? WidenBFloat16(bits) : WidenFloat16(bits);
  }

  // Equal bits, or both NaN; and nothing written beside the elements.
  bool Matches(const Array& other) const {
    for (uint64_t i = 0; i < count_; ++i) {
      const bool both_nan = std::isnan(Get(i)) && std::isnan(other.Get(i));
      const uint64_t size = SizeBytes(type_);
      if (!both_nan && std::memcmp(data() + i * size, other.data() + i * size, size) != 0) {
        return false;
      }
    }
    return data()[-1] == 0xa5 && data()[count_ * SizeBytes(type_)] == 0xa5;
  }

  unsigned char* data() { return bytes_.data() + offset_; }
  const unsigned char* data() const { return bytes_.data() + offset_; }

 private:
  DataType type_;
  uint64_t count_;
  uint64_t offset_ = 0;
  std::vector<unsigned char> bytes_;
};

struct Arrays {
  Arrays(const AdamTypes& types, uint64_t count, uint64_t misalignment)
      : main(DataType::kFloat32, count, 1 + misalignment),
        exp_avg(types.exp_avg, count, 1 + misalignment * 3 % 7),
        exp_avg_sq(types.exp_avg_sq, count, 1 + misalignment * 5 % 7),
        gradient(types.gradient, count, 1 + misalignment),
        parameter(types.parameter, count, 1 + misalignment * 2 % 7) {}

  void Fill(std::mt19937_64& random) {
    main.Fill(random, false);
    exp_avg.Fill(random, false);
    exp_avg_sq.Fill(random, true);
    gradient.Fill(random, false);
  }

  AdamArrays InPlace(uint64_t count, bool moments_zero) {
    AdamArrays arrays;
    arrays.main_in = arrays.main_out = main.data();
    arrays.exp_avg_out = exp_avg.data();
    arrays.exp_avg_sq_out = exp_avg_sq.data();
    arrays.exp_avg_in = moments_zero ? nullptr : exp_avg.data();
    arrays.exp_avg_sq_in = moments_zero ? nullptr : exp_avg_sq.data();
    arrays.gradient = gradient.data();
    arrays.parameter = parameter.data();
    arrays.count = count;
    return arrays;
  }

  bool Matches(const Arrays& other) const {
    return main.Matches(other.main) && exp_avg.Matches(other.exp_avg) &&
           exp_avg_sq.Matches(other.exp_avg_sq) && parameter.Matches(other.parameter);
  }

  Array main, exp_avg, exp_avg_sq, gradient, parameter;
};

Hyperparameters RandomHyperparameters(std::mt19937_64& random) {
  std::uniform_real_distribution<double> unit;
  Hyperparameters h;
  h.lr = std::pow(10.0, -6 * unit(random));
  h.beta1 = unit(random);
  h.beta2 = 1 - std::pow(10.0, -6 * unit(random));
  h.eps = random() % 5 == 0 ? 0 : std::pow(10.0, -12 * unit(random));
  h.weight_decay = random() % 3 == 0 ? 0 : unit(random);
  h.mode = random() % 2 == 0 ? AdamMode::kAdam : AdamMode::kAdamW;
  h.bias_correction = random() % 4 != 0;
  h.maximize = random() % 4 == 0;
  h.gradient_scale = random() % 2 == 0 ? 1.0f : static_cast<float>(unit(random));
  return h;
}

std::vector<InstructionSet> VectorSets() {
  std::vector<InstructionSet> sets;
  for (InstructionSet set : {InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (Available(set)) {
      sets.push_back(set);
    }
  }
  return sets;
}

// One random call of `set` against the scalar kernel; true if all bits agree.
bool Agrees(InstructionSet set, const AdamTypes& types, uint64_t count, std::mt19937_64& random) {
  Arrays expected(types, count, random() % 7);
  expected.Fill(random);
  Arrays actual = expected;
  const Profile profile = random() % 2 == 0 ? Profile::kTorchCpu : Profile::kTorchCpuIeee;
  const AdamConstants constants =
      MakeAdamConstants(RandomHyperparameters(random), 1 + random() % 100000, profile);
  const bool moments_zero = random() % 5 == 0;
  FindAdamKernel(InstructionSet::kScalar, types)(constants, expected.InPlace(count, moments_zero));
  FindAdamKernel(set, types)(constants, actual.InPlace(count, moments_zero));
  return actual.Matches(expected);
}

TEST_CASE("Kernels: every type combination has the scalar reference's bits", "[device]") {
  const uint64_t seed = Seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (InstructionSet set : VectorSets()) {
    for (DataType exp_avg : kTypes) {
      for (DataType exp_avg_sq : {DataType::kFloat32, DataType::kBFloat16}) {
        for (DataType gradient : kTypes) {
          for (DataType parameter : kTypes) {
            for (uint64_t count : {0u, 1u, 5u, 15u, 16u, 33u, 257u}) {
              const AdamTypes types{exp_avg, exp_avg_sq, gradient, parameter};
              INFO(Name(set).data() << " count " << count);
              REQUIRE(Agrees(set, types, count, random));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("Kernels: random hyperparameters and sizes have the scalar reference's bits",
          "[device]") {
  const uint64_t seed = Seed() + 1;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (InstructionSet set : VectorSets()) {
    for (int trial = 0; trial < 400; ++trial) {
      const AdamTypes types{kTypes[random() % 3], kTypes[random() % 2], kTypes[random() % 3],
                            kTypes[random() % 3]};
      INFO(Name(set).data() << " trial " << trial);
      REQUIRE(Agrees(set, types, random() % 1000, random));
    }
  }
}

TEST_CASE("Kernels: outputs apart from the inputs leave the inputs alone", "[device]") {
  std::mt19937_64 random(Seed() + 2);
  constexpr uint64_t kCount = 103;
  const AdamTypes types;
  for (InstructionSet set : VectorSets()) {
    Arrays in_place(types, kCount, 0);
    in_place.Fill(random);
    Arrays in = in_place;
    const Arrays before = in_place;
    Arrays out(types, kCount, 3);
    const AdamConstants constants =
        MakeAdamConstants(RandomHyperparameters(random), 3, Profile::kTorchCpu);
    FindAdamKernel(set, types)(constants, in_place.InPlace(kCount, false));
    AdamArrays arrays = in.InPlace(kCount, false);
    arrays.main_out = out.main.data();
    arrays.exp_avg_out = out.exp_avg.data();
    arrays.exp_avg_sq_out = out.exp_avg_sq.data();
    arrays.parameter = out.parameter.data();
    FindAdamKernel(set, types)(constants, arrays);
    CHECK(out.Matches(in_place));
    CHECK(in.Matches(before));
  }
}

TEST_CASE("Kernels: there is none for a float16 exp_avg_sq", "[device]") {
  AdamTypes types;
  types.exp_avg_sq = DataType::kFloat16;
  CHECK(FindAdamKernel(InstructionSet::kScalar, types) == nullptr);
}

TEST_CASE("Kernels: conversions have the plain definition's bits", "[device]") {
  constexpr uint64_t kCount = 0x10000 + 5;
  for (InstructionSet set : VectorSets()) {
    for (DataType type : kTypes) {
      // Every 16-bit pattern, and fp32 values on and around each of them.
      Array narrow(type, kCount, 2);
      for (uint64_t i = 0; i < kCount * SizeBytes(type); ++i) {
        narrow.data()[i] = static_cast<unsigned char>(i % 2 == 0 ? i / 2 : i / 2 >> 8);
      }
      Array wide(DataType::kFloat32, kCount, 1);
      FindConvertKernel(set, type, DataType::kFloat32)(narrow.data(), wide.data(), kCount);
      Array expected(DataType::kFloat32, kCount, 1);
      FindConvertKernel(InstructionSet::kScalar, type, DataType::kFloat32)(narrow.data(),
                                                                           expected.data(), kCount);
      REQUIRE(wide.Matches(expected));
      for (uint32_t nudge : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u}) {
        for (uint64_t i = 0; i < kCount; ++i) {
          wide.Set(i, std::bit_cast<float>(std::bit_cast<uint32_t>(expected.Get(i)) + nudge));
        }
        Array rounded(type, kCount, 2);
        Array plain(type, kCount, 2);
        FindConvertKernel(set, DataType::kFloat32, type)(wide.data(), rounded.data(), kCount);
        FindConvertKernel(InstructionSet::kScalar, DataType::kFloat32, type)(wide.data(),
                                                                             plain.data(), kCount);
        INFO(Name(set).data() << " type " << static_cast<int>(type) << " nudge " << nudge);
        REQUIRE(rounded.Matches(plain));
      }
    }
  }
}

// All instruction sets of this machine, the plain one included.
std::vector<InstructionSet> AllSets() {
  std::vector<InstructionSet> sets = VectorSets();
  sets.push_back(InstructionSet::kScalar);
  return sets;
}

TEST_CASE("Kernels: equal types are copied bit for bit, NaNs too", "[device]") {
  constexpr uint64_t kCount = 0x10000 + 5;
  for (InstructionSet set : AllSets()) {
    for (DataType type : kTypes) {
      Array from(type, kCount, 2);
      for (uint64_t i = 0; i < kCount * SizeBytes(type); ++i) {
        from.data()[i] = static_cast<unsigned char>(i % 2 == 0 ? i / 2 : i / 2 >> 8);
      }
      Array to(type, kCount, 3);
      FindConvertKernel(set, type, type)(from.data(), to.data(), kCount);
      INFO(Name(set).data() << " type " << static_cast<int>(type));
      CHECK(std::memcmp(from.data(), to.data(), kCount * SizeBytes(type)) == 0);
    }
  }
}

TEST_CASE("Kernels: one 16-bit type becomes the other by way of fp32", "[device]") {
  constexpr uint64_t kCount = 0x10000 + 5;
  for (InstructionSet set : AllSets()) {
    for (DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
      const DataType other = type == DataType::kBFloat16 ? DataType::kFloat16 : DataType::kBFloat16;
      Array from(type, kCount, 2);
      for (uint64_t i = 0; i < kCount; ++i) {
        const auto bits = static_cast<uint16_t>(i);
        std::memcpy(from.data() + i * 2, &bits, 2);
      }
      Array to(other, kCount, 2);
      FindConvertKernel(set, type, other)(from.data(), to.data(), kCount);
      Array expected(other, kCount, 2);
      for (uint64_t i = 0; i < kCount; ++i) {
        expected.Set(i, from.Get(i));
      }
      INFO(Name(set).data() << " from " << static_cast<int>(type));
      CHECK(to.Matches(expected));
    }
  }
}

// Mains that a refresh leaves: `expected` by the definition, in bits.
TEST_CASE("Kernels: a refresh keeps the mains that round to their parameter, bit for bit",
          "[device]") {
  const uint64_t seed = Seed() + 9;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (InstructionSet set : AllSets()) {
    for (DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
      for (uint64_t count : {0u, 1u, 5u, 15u, 16u, 33u, 70001u}) {
        std::vector<uint32_t> mains(count);
        std::vector<uint16_t> parameters(count);
        std::vector<uint32_t> expected(count);
        uint64_t kept = 0;
        for (uint64_t i = 0; i < count; ++i) {
          mains[i] = std::bit_cast<uint32_t>(RandomFloat(random));
          const float main = std::bit_cast<float>(mains[i]);
          const uint16_t cast =
              type == DataType::kBFloat16 ? NarrowBFloat16(main) : NarrowFloat16(main);
          // The cast itself, its neighbour in bits, or anything (NaNs with payloads among it).
          const uint64_t draw = random() % 4;
          parameters[i] = draw < 2    ? cast
                          : draw == 2 ? static_cast<uint16_t>(cast ^ 1u)
                                      : static_cast<uint16_t>(random());
          const float wide = type == DataType::kBFloat16 ? WidenBFloat16(parameters[i])
                                                         : WidenFloat16(parameters[i]);
          expected[i] = parameters[i] == cast ? mains[i] : std::bit_cast<uint32_t>(wide);
          kept += expected[i] == mains[i] ? 1 : 0;
        }
        std::vector<uint32_t> apart(count, 0xeeeeeeee);
        FindRefreshKernel(set, type)(parameters.data(), mains.data(), apart.data(), count);
        INFO(Name(set).data() << " type " << static_cast<int>(type) << " count " << count);
        REQUIRE(apart == expected);
        FindRefreshKernel(set, type)(parameters.data(), mains.data(), mains.data(), count);
        REQUIRE(mains == expected);
        REQUIRE((count < 70001 || (kept > count / 3 && kept < count * 4 / 5)));
      }
    }
  }
}

TEST_CASE("Kernels: a refresh by fp32 parameters takes their bits", "[device]") {
  const std::vector<uint32_t> parameters = {0x3f800000, 0x80000000, 0x7fc12345, 0xff800001};
  for (InstructionSet set : AllSets()) {
    std::vector<uint32_t> mains = {0x3f800000, 0x00000000, 0x7fc00000, 0xff800001};
    FindRefreshKernel(set, DataType::kFloat32)(parameters.data(), mains.data(), mains.data(), 4);
    CHECK(mains == parameters);
  }
}

TEST_CASE("Conversions: widening and narrowing again gives the same 16 bits", "[device]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto word = static_cast<uint16_t>(bits);
    const float brain = WidenBFloat16(word);
    const float half = WidenFloat16(word);
    REQUIRE((std::isnan(brain) || NarrowBFloat16(brain) == word));
    REQUIRE((std::isnan(half) || NarrowFloat16(half) == word));
  }
}

TEST_CASE("Conversions: ties go to even, overflow to infinity, the smallest half to zero",
          "[device]") {
  CHECK(NarrowBFloat16(1.00390625f) == 0x3f80);  // half way, even below
  CHECK(NarrowBFloat16(1.01171875f) == 0x3f82);  // half way, even above
  CHECK(NarrowBFloat16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(NarrowFloat16(65519.0f) == 0x7bff);
  CHECK(NarrowFloat16(65520.0f) == 0x7c00);
  CHECK(NarrowFloat16(0x1p-25f) == 0x0000);
  CHECK(NarrowFloat16(0x1.8p-25f) == 0x0001);
  CHECK(NarrowFloat16(0x1.8p-24f) == 0x0002);
  CHECK(NarrowFloat16(-0x1p-24f) == 0x8001);
}

TEST_CASE("SquareRootMkl: lies at most one unit below the correctly rounded root", "[device]") {
  std::mt19937_64 random(Seed() + 3);
  int below = 0;
  constexpr int kTrials = 200000;
  for (int i = 0; i < kTrials; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random() % 0x7f800000));
    const auto exact = std::bit_cast<int32_t>(std::sqrt(x));
    const auto root = std::bit_cast<int32_t>(SquareRootMkl(x));
    REQUIRE((root == exact || root == exact - 1));
    below += root != exact ? 1 : 0;
  }
  CHECK(below > kTrials / 1000);
  CHECK(below < kTrials / 50);
}

TEST_CASE("SquareRootMkl: special values are IEEE's", "[device]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(std::bit_cast<uint32_t>(SquareRootMkl(0.0f)) == 0);
  CHECK(std::bit_cast<uint32_t>(SquareRootMkl(-0.0f)) == 0x80000000u);
  CHECK(SquareRootMkl(kInfinity) == kInfinity);
  CHECK(std::isnan(SquareRootMkl(-1.0f)));
  CHECK(std::isnan(SquareRootMkl(std::numeric_limits<float>::quiet_NaN())));
  CHECK(SquareRootMkl(4.0f) == 2.0f);
  CHECK(SquareRootMkl(0x1p-148f) == 0x1p-74f);
}

}  // namespace
}  // namespace moment::device
