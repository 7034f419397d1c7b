#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moment::cli {

enum class Verdict : uint8_t {
  kOk,
  kWarning,  // momentd serves, with less than it could
  kFailure,  // momentd, or a trainer with it, does not work like this
  kNotApplicable,
};

// One thing that doctor looked at. Scripts depend on the names.
struct Check {
  std::string name;     // "io-uring"
  std::string subject;  // which directory or GPU; "": the machine
  Verdict verdict = Verdict::kOk;
  std::string finding;  // what is the case
  std::string advice;   // what to do, a sentence; "" where nothing is to be done
};

using Checks = std::vector<Check>;

inline Check Fine(std::string name, std::string subject, std::string finding) {
  return {std::move(name), std::move(subject), Verdict::kOk, std::move(finding), ""};
}

inline Check NotApplicable(std::string name, std::string finding) {
  return {std::move(name), "", Verdict::kNotApplicable, std::move(finding), ""};
}

}  // namespace moment::cli
