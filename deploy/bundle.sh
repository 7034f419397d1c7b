#!/usr/bin/env bash
# Puts programs and everything they load beside glibc into one directory, which then runs on any
# machine whose glibc is new enough, without a package of ours or of others.
#
#   deploy/bundle.sh <destination> <programs and libraries> -- <files and directories of the tree>
#
# Binaries must have been linked with the RPATH $ORIGIN (the CMake preset "bundle" does). Ends with
# deploy/check_bundle.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Of glibc: always the machine's own.
readonly GLIBC='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil)\.so'

destination=$1
shift
binaries=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  binaries+=("$1")
  shift
done
[ $# -eq 0 ] || shift

rm -rf "$destination"
mkdir -p "$destination/bin"
for binary in "${binaries[@]}"; do
  cp "$binary" "$destination/bin/"
  ldd "$binary" | awk '/=>/ { print $1, $3 }'
done | sort -u | while read -r name path; do
  [[ $name =~ $GLIBC ]] && continue
  [ -e "$path" ] || { echo "bundle: $name is not to be found" >&2; exit 1; }
  cp -L "$path" "$destination/bin/$name"
done
strip "$destination"/bin/*
for item in "$@"; do
  mkdir -p "$destination/$(dirname "$item")"
  cp -r "$root/$item" "$destination/$item"
done
find "$destination" -name __pycache__ -prune -exec rm -rf {} +

exec "$root/deploy/check_bundle.sh" "$destination"
