# Target "bundle": the daemon, the GPU tests and all they load in <build>/bundle, for machines where
# nothing of ours is installed (deploy/bundle.sh).
set(BUNDLE_TARGETS momentd momentctl moment)
set(BUNDLE_FILES client/python/momentd tests/gpu tests/python/torch_optimizers.py)
if(MOMENT_BUILD_TESTS AND MOMENT_CUDA_COMPILER)
  list(APPEND BUNDLE_TARGETS cuda_conformance_test cuda_gpu_test cuda_lost_gpu_test
       cuda_streaming_bench moment_cuda_kernel_library)
  list(APPEND BUNDLE_FILES tests/device/golden/make_adam_cuda.py)
endif()
set(BUNDLE_BINARIES)
foreach(target IN LISTS BUNDLE_TARGETS)
  list(APPEND BUNDLE_BINARIES $<TARGET_FILE:${target}>)
endforeach()
add_custom_target(bundle
  COMMAND ${PROJECT_SOURCE_DIR}/deploy/bundle.sh ${PROJECT_BINARY_DIR}/bundle ${BUNDLE_BINARIES}
          -- ${BUNDLE_FILES}
  DEPENDS ${BUNDLE_TARGETS} VERBATIM)
