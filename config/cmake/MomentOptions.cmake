# Build options, language level and warnings; every target of ours links moment_options.

option(MOMENT_BUILD_TESTS "Build the tests and moment-bench" ON)
option(MOMENT_WERROR "Treat warnings as errors" OFF)
set(MOMENT_SANITIZE "" CACHE STRING "Sanitizers of this build: empty, 'address,undefined' or 'thread'")
set(MOMENT_PYTHON "" CACHE FILEPATH
  "Python with torch, for the Python tests; empty: the one of deploy/install-deps.sh, if it is there")
if(NOT MOMENT_PYTHON AND EXISTS ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
  set(MOMENT_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(moment_options INTERFACE)
# Bit-identity: the compiler must not fuse or reorder floating point by itself.
target_compile_options(moment_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wno-missing-field-initializers
  -ffp-contract=off -fno-fast-math
  $<$<BOOL:${MOMENT_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
target_include_directories(moment_options INTERFACE ${PROJECT_SOURCE_DIR})
# Of every test.
set(MOMENT_SANITIZER_ENVIRONMENT)
if(MOMENT_SANITIZE)
  set(MOMENT_SANITIZER_ENVIRONMENT
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=second_deadlock_stack=1")
  # -O1 and line numbers are all that reports need, and build faster.
  add_compile_options(-fsanitize=${MOMENT_SANITIZE} -fno-omit-frame-pointer)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_link_options(-fsanitize=${MOMENT_SANITIZE})
  # With its sanitizers on, gcc 12 warns of uninitialised members inside its own <regex>.
  target_compile_options(moment_options INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(MOMENT_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(MOMENT_SANITIZE MATCHES thread)
    add_library(moment_tsan_sync OBJECT ${PROJECT_SOURCE_DIR}/tests/support/tsan_sync.cc)
    target_link_libraries(moment_options INTERFACE
      $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:moment_tsan_sync>>)
  endif()
endif()

# The newest symbol versions that libmoment may need; a test holds it to them. They follow the
# toolchain: those of Debian 12, or of Ubuntu 24.04 and later.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  set(MOMENT_GLIBC_VERSION 2.39)
  set(MOMENT_GLIBCXX_VERSION 3.4.33)
  set(MOMENT_CXXABI_VERSION 1.3.15)
else()
  set(MOMENT_GLIBC_VERSION 2.34)
  set(MOMENT_GLIBCXX_VERSION 3.4.29)
  set(MOMENT_CXXABI_VERSION 1.3.13)
endif()
