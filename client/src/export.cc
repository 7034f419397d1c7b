// libmoment.so is made of moment_client alone; CMake wants a source of its own.
#include "client/include/moment/moment.h"
