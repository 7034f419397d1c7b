// The fake daemon as a program: fake_momentd <directory>; ends at SIGTERM or SIGINT.
#include <signal.h>

#include <cstdio>

#include "tests/client/fake_daemon.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fake_momentd <directory>\n");
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  moment::testing::FakeDisk disk;
  const moment::testing::FakeDaemon daemon(argv[1], &disk);
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}
