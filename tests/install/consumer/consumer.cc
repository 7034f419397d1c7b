// The C++ wrapper, compiled as C++17 with nothing of ours but the installed headers. Exits 0 if an
// unreachable daemon is reported as such.
#include <cstdio>
#include <moment/moment.hpp>

int main() {
  moment::OpenOptions options;
  options.job = "consumer";
  options.socket = "/nowhere/momentd.sock";
  options.connect_for_seconds = 0.0;
  try {
    moment::Store store(options);
  } catch (const moment::Error& error) {
    std::printf("%s\n", error.what());
    return error.code() == MOMENT_UNAVAILABLE ? 0 : 1;
  }
  return 1;
}
