# moment_library(<name> SOURCES ... DEPENDS ...): one static library of the daemon.
function(moment_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC moment_options ${ARG_DEPENDS})
endfunction()

# check_<label> builds the programs of the tests with that label.
foreach(label unit component sim crash e2e bench)
  add_custom_target(check_${label})
endforeach()

# moment_test(<name> LABEL <label> [TIMEOUT <seconds>] [NO_TSAN] SOURCES ... DEPENDS ...): a Catch2
# program, run as one ctest entry. NO_TSAN: not in the tsan build, for tests that make gRPC calls: the
# distribution's gRPC is not instrumented, and what it orders by its own atomics looks unordered.
function(moment_test name)
  cmake_parse_arguments(ARG "NO_TSAN" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(ARG_NO_TSAN AND MOMENT_SANITIZE MATCHES thread)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE moment_options moment_test_main ${ARG_DEPENDS})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
    SKIP_RETURN_CODE 77 ENVIRONMENT "${MOMENT_SANITIZER_ENVIRONMENT}")
  foreach(label IN LISTS ARG_LABEL)
    add_dependencies(check_${label} ${name})
  endforeach()
endfunction()
