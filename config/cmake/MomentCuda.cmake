# CUDA kernels as data of the program. CMake's own CUDA language would link NVIDIA's run-time library;
# only the compiler is needed.
#
#   MOMENT_CUDA                 AUTO (if nvcc is there), ON (or fail), OFF
#   MOMENT_CUDA_ARCHITECTURES   of the machine code; PTX of the first one comes with it, unless there
#                               is only one

set(MOMENT_CUDA AUTO CACHE STRING "Build the CUDA device: AUTO, ON or OFF")
set(MOMENT_CUDA_ARCHITECTURES "80;90;100;120" CACHE STRING "Compute capabilities of the kernels")
set(MOMENT_CUDA_COMPILER)

if(MOMENT_CUDA)
  find_package(CUDAToolkit 12.8 QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    set(MOMENT_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    enable_language(ASM)
    message(STATUS "CUDA device: nvcc ${CUDAToolkit_VERSION}, compute capabilities "
                   "${MOMENT_CUDA_ARCHITECTURES}")
  elseif(MOMENT_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA device: no nvcc of 12.8 or later found; this build has the host device alone")
  else()
    message(FATAL_ERROR "MOMENT_CUDA is ON and no nvcc of 12.8 or later was found")
  endif()
endif()

function(moment_cuda_code_flags variable)
  set(flags)
  foreach(architecture IN LISTS MOMENT_CUDA_ARCHITECTURES)
    list(APPEND flags -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(LENGTH MOMENT_CUDA_ARCHITECTURES count)
  if(count GREATER 1)
    list(GET MOMENT_CUDA_ARCHITECTURES 0 oldest)
    list(APPEND flags -gencode=arch=compute_${oldest},code=compute_${oldest})
  endif()
  set(${variable} ${flags} PARENT_SCOPE)
endfunction()

# moment_embed_kernels(<library> KERNELS <name>... DEPENDS <header>...): kernels/<name>.cu becomes the
# symbol moment_kernels_<name>.
function(moment_embed_kernels library)
  cmake_parse_arguments(ARG "" "" "KERNELS;DEPENDS" ${ARGN})
  moment_cuda_code_flags(code_flags)
  set(host_compiler)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(host_compiler -ccbin ${CMAKE_CXX_COMPILER})
  endif()
  set(assembly ".section .note.GNU-stack,\"\",%progbits\n.section .rodata\n")
  set(binaries)
  foreach(name IN LISTS ARG_KERNELS)
    set(binary ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
    add_custom_command(OUTPUT ${binary}
      COMMAND ${MOMENT_CUDA_COMPILER} -fatbin -std=c++20 --expt-relaxed-constexpr -Werror all-warnings
              ${host_compiler} -I${PROJECT_SOURCE_DIR} ${code_flags}
              ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${name}.cu -o ${binary}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${name}.cu ${ARG_DEPENDS}
      COMMENT "Compiling the kernels ${name}" VERBATIM)
    list(APPEND binaries ${binary})
    string(APPEND assembly
      ".balign 64\n.global moment_kernels_${name}\n.type moment_kernels_${name}, %object\n"
      "moment_kernels_${name}:\n.incbin \"${binary}\"\n"
      ".size moment_kernels_${name}, . - moment_kernels_${name}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${library}.S CONTENT "${assembly}" @ONLY)
  set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/${library}.S PROPERTIES
    OBJECT_DEPENDS "${binaries}")
  add_library(${library} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${library}.S)
endfunction()
