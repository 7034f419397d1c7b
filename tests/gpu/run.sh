#!/usr/bin/env bash
# Runs the GPU tests and benchmarks from a bundle (CMake target "bundle") on a machine with a GPU,
# Python 3 with torch and pytest, and nothing of ours. Prints a table of the sections; exits 1 if one
# failed, 77 if there is no GPU.
#
#   tests/gpu/run.sh                 everything
#   tests/gpu/run.sh profiles adam   these sections alone
#
# Sections:
#   conformance  tests/device's suite on the GPU, and what a CudaDevice promises beyond it
#   lost         a fault of the GPU
#   profiles     kernels against the installed torch, bit for bit
#   real         kernels against those of Transformer Engine and torch 2.10 (real_kernels.py says
#                where they come from; skipped without)
#   daemon       momentd with the GPU, a trainer over the ring
#   sharing      the trainer's GPU buffers by IPC handles, bit for bit as torch
#   expandable   the same by descriptors (expandable segments)
#   async        the same with cudaMallocAsync, through the ring
#   ring         the same with sharing turned off
#   training     a GPT, streamed and resident
#   shared       1e9 parameters: seconds, rates, memory
#   deaths       killed trainers, and a fault of the GPU under trainers
#   bad          odd and freed memory, wrong pointers, GPUs that are named otherwise or not seen
#   doctor       momentctl doctor and status about the GPU
#   streaming    chunks through the GPU beside the copy engines' own rate
#   adam         the kernels beside torch's fused optimizer and the copy within the GPU
#
# Environment: MOMENT_GPU_OUT, a directory for the logs.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ALL_SECTIONS=(conformance lost profiles real daemon sharing expandable async ring training
  deaths bad doctor streaming adam shared)
out=${MOMENT_GPU_OUT:-$(mktemp -d)}
export MOMENT_CUDA_KERNEL_LIBRARY=$root/bin/libmoment_cuda_kernel_library.so
export MOMENTD_BINARY=$root/bin/momentd MOMENTCTL_BINARY=$root/bin/momentctl
MOMENTD_LIBRARY=$(echo "$root"/bin/libmoment.so*)
export MOMENTD_LIBRARY
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

python_tests() {
  (cd "$root/tests/gpu" && python3 -m pytest -q --tb=short --maxfail=40 -p no:cacheprovider -rs "$@")
}

section_conformance() { "$root/bin/cuda_conformance_test" && "$root/bin/cuda_gpu_test"; }
section_lost() { "$root/bin/cuda_lost_gpu_test"; }
section_profiles() { python_tests test_profiles.py; }
section_real() { python_tests test_real_kernels.py; }
section_daemon() { python_tests -s test_daemon.py; }
section_sharing() { python_tests -s test_sharing.py test_namespaces.py; }
section_expandable() {
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True MOMENT_GPU_EXPECT=cuda_vmm \
    python_tests -s test_sharing.py
}
section_async() {
  PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync MOMENT_GPU_EXPECT=ring \
    python_tests -s test_sharing.py -k 'not paused'
}
section_ring() {
  MOMENTD_GPU_TRANSPORT=ring MOMENT_GPU_EXPECT=ring python_tests -s test_sharing.py
}
section_training() { python_tests -s test_training.py; }
section_shared() { (cd "$root/tests/gpu" && python3 bench_shared.py); }
section_deaths() { python_tests -s test_deaths.py; }
section_bad() { python_tests -s test_bad_memory.py; }
section_doctor() { python_tests test_doctor.py; }
section_streaming() { "$root/bin/cuda_streaming_bench"; }
section_adam() { (cd "$root/tests/gpu" && python3 bench_adam.py); }

# summary <section>: the line of its log that says most.
summary() {
  grep -E 'tests passed|passed|failed|skipped|GB/s|saved' "$out/$1.log" | tail -1 | cut -c1-100
}

main() {
  local sections=("$@") name started status failed=0 table=()
  [ ${#sections[@]} -gt 0 ] || sections=("${ALL_SECTIONS[@]}")
  python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "run.sh: skipped, torch sees no GPU"
    exit 77
  }
  for name in "${sections[@]}"; do
    declare -F "section_$name" >/dev/null || {
      echo "run.sh: no section '$name'; there are: ${ALL_SECTIONS[*]}" >&2
      exit 2
    }
    printf '\n===== %s\n' "$name"
    started=$SECONDS
    "section_$name" 2>&1 | tee "$out/$name.log"
    status=${PIPESTATUS[0]}
    case $status in
      0) result=ok ;;
      5 | 77) result=skipped ;;  # pytest's 5: everything was skipped
      *) result=FAILED failed=1 ;;
    esac
    table+=("$(printf '%-12s %-8s %4d s  %s' "$name" "$result" $((SECONDS - started)) \
      "$(summary "$name")")")
  done
  printf '\n===== all sections\n'
  printf '%s\n' "${table[@]}"
  exit "$failed"
}

main "$@"
