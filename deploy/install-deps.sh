#!/usr/bin/env bash
# Installs what momentd needs: packages of the system (Debian 12 or Ubuntu 24.04) and a Python
# environment with a CPU build of torch in build/venv. Quick when all of it is there.
#
#   deploy/install-deps.sh            what the build and the quickstart need
#   deploy/install-deps.sh --tests    that, and what tests/run.sh needs
#   deploy/install-deps.sh --no-python
#
# Environment:
#   MOMENT_VENV         the Python environment, if not build/venv
#   MOMENT_PYTHON_BASE  the interpreter to make it from (default: the system's, else python3)
#   MOMENT_TORCH_INDEX  where torch comes from (default: PyTorch's index of CPU builds). If it does
#                       not answer, or with the value "pip", torch comes from where pip is set up to
#                       look; there it may be the build with CUDA, some gigabytes.
#   MOMENT_SKIP_PACKAGES=1  leave the system's packages alone (other distributions)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

readonly TORCH="torch==2.13.0"
readonly TORCH_CPU_INDEX="https://download.pytorch.org/whl/cpu"

# The names are the same in both releases.
readonly BUILD_PACKAGES=(
  g++ cmake ninja-build ccache pkg-config ca-certificates
  protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc++-dev libabsl-dev
  liburing-dev libspdlog-dev libcli11-dev libxxhash-dev prometheus-cpp-dev libsystemd-dev
  catch2 python3 python3-venv)
readonly TEST_PACKAGES=(clang-14 clang-format-14 clang-tidy-14 binutils git e2fsprogs util-linux)

with_tests=0
with_python=1
for argument in "$@"; do
  case "$argument" in
    --tests) with_tests=1 ;;
    --no-python) with_python=0 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "install-deps: unknown argument '$argument' (see --help)" >&2; exit 2 ;;
  esac
done

say() { echo "install-deps: $*"; }

system_name() {
  # shellcheck disable=SC1091
  (. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || echo unknown
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    say "root or sudo is needed for: $*" >&2
    return 1
  fi
}

install_packages() {
  local wanted=("${BUILD_PACKAGES[@]}") missing=() name
  [ "$with_tests" = 0 ] || wanted+=("${TEST_PACKAGES[@]}")
  if [ "${MOMENT_SKIP_PACKAGES:-0}" = 1 ]; then
    say "MOMENT_SKIP_PACKAGES=1: packages of the system are left alone"
    return 0
  fi
  case "$(system_name)" in
    "debian 12" | "ubuntu 24.04") ;;
    *)
      say "this script knows Debian 12 and Ubuntu 24.04, and this is '$(system_name)'." >&2
      say "Install the equivalents of: ${wanted[*]}" >&2
      say "and run it again with MOMENT_SKIP_PACKAGES=1." >&2
      return 1
      ;;
  esac
  for name in "${wanted[@]}"; do
    is_installed "$name" || missing+=("$name")
  done
  if [ ${#missing[@]} = 0 ]; then
    say "packages of the system: all ${#wanted[@]} there"
    return 0
  fi
  say "installing ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
}

index_answers() {
  "$1" - "$2" <<'PYTHON'
import sys
import urllib.request
try:
    urllib.request.urlopen(sys.argv[1].rstrip("/") + "/torch/", timeout=15).close()
except Exception as error:
    sys.exit(f"install-deps: {sys.argv[1]} does not answer: {error}")
PYTHON
}

install_torch() {
  local python=$1 index=${MOMENT_TORCH_INDEX:-$TORCH_CPU_INDEX}
  if [ "$index" != pip ] && index_answers "$python" "$index"; then
    "$python" -m pip install --quiet --index-url "$index" "$TORCH"
    return
  fi
  say "torch comes from where pip is set up to look (it may be the build with CUDA)"
  "$python" -m pip install --quiet "$TORCH"
}

install_python() {
  local venv=${MOMENT_VENV:-$root/build/venv}
  local requirements=("$root/deploy/requirements.txt") stamp list=()
  [ "$with_tests" = 0 ] ||
    requirements+=("$root/deploy/wheel/requirements.txt" "$root/tests/requirements.txt")
  # What is installed already is told by the requirement lines that were, not by asking pip.
  stamp="$venv/.moment-requirements"
  list=("$TORCH")
  mapfile -t -O 1 list < <(cat "${requirements[@]}" | grep -v '^#')
  if [ -f "$stamp" ] && [ -z "$(printf '%s\n' "${list[@]}" | grep -vxFf "$stamp")" ]; then
    say "Python environment: $venv is complete"
    return 0
  fi
  if [ ! -x "$venv/bin/python" ]; then
    local base=${MOMENT_PYTHON_BASE:-/usr/bin/python3}
    [ -x "$base" ] || base=python3
    say "making the Python environment $venv ($("$base" --version))"
    "$base" -m venv "$venv"
  fi
  say "installing ${list[*]}"
  install_torch "$venv/bin/python"
  "$venv/bin/python" -m pip install --quiet $(printf -- '-r %s ' "${requirements[@]}")
  printf '%s\n' "${list[@]}" >"$stamp"
}

install_packages
[ "$with_python" = 0 ] || install_python
say "done"
