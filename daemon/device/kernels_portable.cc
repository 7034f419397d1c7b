// In the place of the vector kernels on processors that are not x86-64.
#include "daemon/device/kernels.h"

namespace moment::device {

const KernelTable* Avx2Kernels() { return nullptr; }
const KernelTable* Avx512Kernels() { return nullptr; }
bool Avx512ReciprocalRootMatches() { return false; }

}  // namespace moment::device
