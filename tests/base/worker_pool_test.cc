#include "daemon/base/worker_pool.h"

#include <atomic>
#include <vector>

#include "daemon/base/memory.h"
#include "tests/support/catch.h"

namespace moment::base {
namespace {

struct CountingTask : WorkerPool::Task {
  std::atomic<int>* count = nullptr;
};

TEST_CASE("WorkerPool: runs everything that was posted before it ends", "[base]") {
  std::atomic<int> count{0};
  std::vector<CountingTask> tasks(1000);
  {
    WorkerPool pool(3);
    for (CountingTask& task : tasks) {
      task.count = &count;
      task.run = [](WorkerPool::Task* self) noexcept {
        static_cast<CountingTask*>(self)->count->fetch_add(1);
      };
      pool.Post(&task);
    }
  }
  CHECK(count == 1000);
}

TEST_CASE("AlignedBuffer: is zeroed and aligned for direct I/O", "[base]") {
  for (uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{5000}, uint64_t{3} << 20}) {
    auto buffer = AlignedBuffer::Allocate(length);
    REQUIRE(buffer.ok());
    CHECK(reinterpret_cast<uint64_t>(buffer->data()) % kIoAlignment == 0);
    CHECK(buffer->size() >= length);
    CHECK(buffer->data()[buffer->size() - 1] == std::byte{0});
  }
}

}  // namespace
}  // namespace moment::base
