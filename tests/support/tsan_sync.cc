// Part of every program of the tsan build. The distribution's Abseil is not instrumented, so the
// sanitizer cannot see the order that absl::Mutex makes and would report each use of it. These
// definitions stand before Abseil's own (the programs come first in symbol lookup, for gRPC's calls
// too), tell the sanitizer about the order, and call the original.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

// Abseil's deadlock detector moves its own memory under a lock of its own kind, inside the lock
// that a caller takes: the sanitizer sees its memmove, as that is libc's, and not the lock.
extern "C" const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() { return "called_from_lib:libabsl_graphcycles\n"; }

namespace {

#define TSAN_SYNC_TEXT(name) TSAN_SYNC_TEXT_(name)
#define TSAN_SYNC_TEXT_(name) #name

// `qualifier` is "K" for const members. Mangled names carry Abseil's inline namespace, which each
// distribution names in its own way.
template <typename Function>
Function Original(const char* qualifier, const char* mangled_member) {
  const std::string space = TSAN_SYNC_TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  const std::string name = std::string("_ZN") + qualifier + "4absl" + std::to_string(space.size()) +
                           space + mangled_member;
  void* symbol = dlsym(RTLD_NEXT, name.c_str());
  if (symbol == nullptr) {
    std::fprintf(stderr, "tsan_sync: this Abseil has no %s\n", name.c_str());
    std::abort();
  }
  return reinterpret_cast<Function>(symbol);
}

// The original of a member function, called with its object first as the ABI does.
#define TSAN_SYNC_ORIGINAL(qualifier, mangled_member, result, ...)                              \
  [] {                                                                                          \
    static const auto kOriginal = Original<result (*)(__VA_ARGS__)>(qualifier, mangled_member); \
    return kOriginal;                                                                           \
  }()

void Acquire(const void* object) { __tsan_acquire(const_cast<void*>(object)); }
void Release(const void* object) { __tsan_release(const_cast<void*>(object)); }

// A condition is evaluated with the mutex held, inside Abseil, and by whichever thread gives the
// mutex up: it acquires the order by itself, that of the waiter's own objects too.
struct OrderedCondition {
  OrderedCondition(const absl::Mutex* of, const absl::Condition* evaluated)
      : mutex(of), condition(evaluated) {
    Release(this);
  }

  const absl::Mutex* mutex;
  const absl::Condition* condition;
};

bool EvaluateOrdered(OrderedCondition* ordered) {
  Acquire(ordered);
  Acquire(ordered->mutex);
  const bool result = ordered->condition->Eval();
  Release(ordered->mutex);
  return result;
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  TSAN_SYNC_ORIGINAL("", "5Mutex4LockEv", void, Mutex*)(this);
  Acquire(this);
}

void Mutex::Unlock() {
  Release(this);
  TSAN_SYNC_ORIGINAL("", "5Mutex6UnlockEv", void, Mutex*)(this);
}

bool Mutex::TryLock() {
  const bool locked = TSAN_SYNC_ORIGINAL("", "5Mutex7TryLockEv", bool, Mutex*)(this);
  if (locked) Acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  TSAN_SYNC_ORIGINAL("", "5Mutex10ReaderLockEv", void, Mutex*)(this);
  Acquire(this);
}

void Mutex::ReaderUnlock() {
  Release(this);
  TSAN_SYNC_ORIGINAL("", "5Mutex12ReaderUnlockEv", void, Mutex*)(this);
}

void Mutex::Await(const Condition& condition) {
  OrderedCondition ordered(this, &condition);
  Release(this);
  TSAN_SYNC_ORIGINAL("", "5Mutex5AwaitERKNS0_9ConditionE", void, Mutex*, const Condition&)
  (this, Condition(EvaluateOrdered, &ordered));
  Acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  OrderedCondition ordered(this, &condition);
  Release(this);
  const bool result = TSAN_SYNC_ORIGINAL(
      "", "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE", bool, Mutex*,
      const Condition&, Duration)(this, Condition(EvaluateOrdered, &ordered), timeout);
  Acquire(this);
  return result;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  OrderedCondition ordered(this, &condition);
  Release(this);
  const bool result = TSAN_SYNC_ORIGINAL(
      "", "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE", bool, Mutex*, const Condition&,
      Time)(this, Condition(EvaluateOrdered, &ordered), deadline);
  Acquire(this);
  return result;
}

void Mutex::LockWhen(const Condition& condition) {
  OrderedCondition ordered(this, &condition);
  TSAN_SYNC_ORIGINAL("", "5Mutex8LockWhenERKNS0_9ConditionE", void, Mutex*, const Condition&)
  (this, Condition(EvaluateOrdered, &ordered));
  Acquire(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  OrderedCondition ordered(this, &condition);
  const bool result = TSAN_SYNC_ORIGINAL(
      "", "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE", bool, Mutex*,
      const Condition&, Duration)(this, Condition(EvaluateOrdered, &ordered), timeout);
  Acquire(this);
  return result;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  OrderedCondition ordered(this, &condition);
  const bool result = TSAN_SYNC_ORIGINAL(
      "", "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE", bool, Mutex*,
      const Condition&, Time)(this, Condition(EvaluateOrdered, &ordered), deadline);
  Acquire(this);
  return result;
}

void CondVar::Wait(Mutex* mutex) {
  Release(mutex);
  TSAN_SYNC_ORIGINAL("", "7CondVar4WaitEPNS0_5MutexE", void, CondVar*, Mutex*)
  (this, mutex);
  Acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  Release(mutex);
  const bool result = TSAN_SYNC_ORIGINAL("", "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
                                         bool, CondVar*, Mutex*, Duration)(this, mutex, timeout);
  Acquire(mutex);
  return result;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  Release(mutex);
  const bool result = TSAN_SYNC_ORIGINAL("", "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
                                         bool, CondVar*, Mutex*, Time)(this, mutex, deadline);
  Acquire(mutex);
  return result;
}

void Notification::Notify() {
  Release(this);
  // HasBeenNotified() is inline: an acquiring load of the flag, which lies behind the mutex.
  Release(reinterpret_cast<const char*>(this) + sizeof(Mutex));
  TSAN_SYNC_ORIGINAL("", "12Notification6NotifyEv", void, Notification*)(this);
}

void Notification::WaitForNotification() const {
  TSAN_SYNC_ORIGINAL("K", "12Notification19WaitForNotificationEv", void, const Notification*)
  (this);
  Acquire(this);
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  const bool notified =
      TSAN_SYNC_ORIGINAL("K", "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", bool,
                         const Notification*, Duration)(this, timeout);
  if (notified) Acquire(this);
  return notified;
}

bool BlockingCounter::DecrementCount() {
  Release(this);
  return TSAN_SYNC_ORIGINAL("", "15BlockingCounter14DecrementCountEv", bool,
                            BlockingCounter*)(this);
}

void BlockingCounter::Wait() {
  TSAN_SYNC_ORIGINAL("", "15BlockingCounter4WaitEv", void, BlockingCounter*)(this);
  Acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
