#include "tests/io/engine_subject.h"

#include <unistd.h>

#include <utility>

#include "tests/support/catch.h"

namespace moment::io {
namespace {

std::vector<std::string> FindRealKinds() {
  const auto created = CreateEngine({});
  REQUIRE(created.ok());
  if (!created->reason.empty()) {
    WARN("io_uring is refused here, its engine is not tested: " << created->reason);
    return {"threads"};
  }
  return {"io_uring", "threads"};
}

}  // namespace

const std::vector<std::string>& RealKinds() {
  static const std::vector<std::string> kinds = FindRealKinds();
  return kinds;
}

const std::vector<std::string>& AllKinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> all = RealKinds();
    all.emplace_back("simulated");
    return all;
  }();
  return kinds;
}

Subject::Subject(const std::string& kind, const SubjectOptions& options) {
  if (kind == "simulated") {
    disk_ = std::make_unique<SimulatedDisk>(options.faults);
    return;
  }
  EngineOptions engine;
  engine.kind = kind == "threads" ? EngineKind::kThreads : EngineKind::kIoUring;
  engine.depth = options.depth;
  engine.threads = options.threads;
  auto created = CreateEngineWithHooks(engine, options.hooks);
  INFO(created.status());
  REQUIRE(created.ok());
  REQUIRE(created->engine->name() == kind);
  engine_ = std::move(created->engine);
  posix_files_ = CreatePosixFileSystem();
}

std::string Subject::Path(const std::string& name) const {
  return disk_ != nullptr ? "/" + name : directory_.Path(name);
}

std::unique_ptr<File> Subject::FileWith(const std::string& name, const std::byte* bytes,
                                        uint64_t length_bytes, bool direct) {
  // Written by an engine without faults.
  if (disk_ != nullptr) {
    MustOpen(files(), Path(name), OpenMode::kCreate);
    disk_->Corrupt(Path(name), [&](std::vector<std::byte>& content) {
      content.assign(bytes, bytes + length_bytes);
    });
  } else {
    const auto plain = MustOpen(files(), Path(name), OpenMode::kCreate);
    REQUIRE(::pwrite(plain->fd(), bytes, length_bytes, 0) == static_cast<ssize_t>(length_bytes));
  }
  return MustOpen(files(), Path(name), OpenMode::kReadWrite, direct);
}

void Subject::Truncate(const std::string& name, uint64_t length_bytes) {
  if (disk_ != nullptr) {
    disk_->Corrupt(Path(name), [&](std::vector<std::byte>& bytes) { bytes.resize(length_bytes); });
  } else {
    REQUIRE(::truncate(Path(name).c_str(), static_cast<off_t>(length_bytes)) == 0);
  }
}

}  // namespace moment::io
