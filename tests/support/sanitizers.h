#pragma once

namespace moment::test {

// True in a program of the thread sanitizer, whose shadow takes four bytes for each byte of
// addresses that is touched: what is cheap because it maps the same pages again and again is not so
// there.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace moment::test
