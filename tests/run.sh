#!/usr/bin/env bash
# Installs what it needs, builds every flavour and runs every test. Exits 1 if anything failed.
#
#   tests/run.sh              everything
#   tests/run.sh dev tsan     these sections alone
#
# Sections:
#   format   clang-format over all C++ files
#   dev      g++ -Werror; all tests: unit, component, sim, crash, e2e, Python, install
#   clang    clang 14 -Werror with its thread-safety analysis; the unit tests
#   tidy     clang-tidy over daemon and client with the checks of .clang-tidy
#   asan     address and undefined-behaviour sanitizers; unit, component, sim, crash
#   tsan     thread sanitizer; unit, component
#   bundle   the daemon and the GPU tests in one directory that runs elsewhere; its size and glibc
#
# Environment: MOMENT_JOBS (default: all cores), and that of deploy/install-deps.sh.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
root=$PWD
fixed_addresses=()
jobs=${MOMENT_JOBS:-$(nproc)}
readonly ALL_SECTIONS=(format dev clang tidy asan tsan bundle)
# Checkouts in different folders share what they compiled.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}

cpp_files() { git ls-files '*.cc' '*.h'; }

# configure_and_build <preset> <target...>
configure_and_build() {
  local preset=$1
  shift
  cmake --preset "$preset" -DMOMENT_PYTHON="$python" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log"
    return 1
  }
  cmake --build --preset "$preset" -j "$jobs" --target "$@"
}

# run_ctest <preset> <argument...>: its closing lines are kept for the end of the run.
run_ctest() {
  local preset=$1 status
  shift
  "${fixed_addresses[@]}" ctest --preset "$preset" -j "$jobs" "$@" 2>&1 | tee "build/$preset.ctest.log"
  status=${PIPESTATUS[0]}
  return "$status"
}

section_format() {
  cpp_files | xargs clang-format-14 --dry-run --Werror
}

# The build leaves the Python tests out where there is no Python, and those skip what they cannot
# import: neither may pass for a run of every test.
check_python() {
  [ -x "$python" ] || {
    echo "run.sh: no Python at $python, the Python tests would be left out: see MOMENT_VENV" >&2
    return 1
  }
  cat deploy/requirements.txt deploy/wheel/requirements.txt tests/requirements.txt | "$python" -c '
import importlib.metadata, re, sys
import torch
names = [re.match(r"[\w.-]+", line).group() for line in sys.stdin if re.match(r"\w", line)]
for name in names:
    importlib.metadata.version(name)
' || {
    echo "run.sh: $python lacks what the tests need (above): remove its folder and run again" >&2
    return 1
  }
}

section_dev() {
  check_python && configure_and_build dev all && run_ctest dev
}

section_clang() {
  configure_and_build clang all && run_ctest clang -L unit
}

section_tidy() {
  configure_and_build clang moment_generated >/dev/null || return 1
  # clang-tidy reads the flags of the clang build; the tests would double its time.
  git ls-files 'daemon/*.cc' 'client/*.cc' | sed "s|^|$root/|" |
    xargs run-clang-tidy-14 -quiet -p build/clang -j "$jobs" 2>/dev/null |
    grep -v '^clang-tidy-14 ' | tee build/tidy.log
  ! grep -qE '(warning|error):' build/tidy.log
}

section_asan() {
  configure_and_build asan check_unit check_component check_sim check_crash &&
    run_ctest asan -L '^(unit|component|sim|crash)$'
}

section_tsan() {
  # The thread sanitizer cannot place its shadow where addresses are randomised further than its
  # compiler knew (Ubuntu 24.04's kernel).
  local fixed_addresses=()
  ! setarch "$(uname -m)" -R true 2>/dev/null || fixed_addresses=(setarch "$(uname -m)" -R)
  configure_and_build tsan check_unit check_component &&
    run_ctest tsan -L '^(unit|component)$'
}

section_bundle() {
  configure_and_build bundle bundle
}

main() {
  local sections=("$@") name started status failed=() table=()
  [ ${#sections[@]} -gt 0 ] || sections=("${ALL_SECTIONS[@]}")
  for name in "${sections[@]}"; do
    declare -F "section_$name" >/dev/null || {
      echo "run.sh: no section '$name'; there are: ${ALL_SECTIONS[*]}" >&2
      exit 2
    }
  done
  deploy/install-deps.sh --tests || exit 1
  python=${MOMENT_VENV:-$root/build/venv}/bin/python
  mkdir -p build
  rm -f build/*.ctest.log
  for name in "${sections[@]}"; do
    printf '\n===== %s\n' "$name"
    started=$SECONDS
    "section_$name"
    status=$?
    table+=("$(printf '%-8s %-6s %5d s' "$name" "$([ $status = 0 ] && echo ok || echo FAILED)" \
      $((SECONDS - started)))")
    [ $status = 0 ] || failed+=("$name")
  done
  printf '\n===== all sections\n'
  printf '%s\n' "${table[@]}"
  for name in "${sections[@]}"; do
    [ ! -f "build/$name.ctest.log" ] || {
      printf '\n%s:\n' "$name"
      grep -A 30 -E '^[0-9]+% tests passed' "build/$name.ctest.log" | grep -v '^$'
    }
  done
  if [ ${#failed[@]} -gt 0 ]; then
    printf '\nFAILED: %s\n' "${failed[*]}"
    exit 1
  fi
  printf '\nall passed in %d s\n' "$SECONDS"
}

main "$@"
