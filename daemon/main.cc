#include <string>
#include <vector>

#include "daemon/app.h"

extern char** environ;

int main(int argc, char** argv) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.emplace_back(*variable);
  }
  return moment::RunDaemon({argv + 1, argv + argc}, environment);
}
