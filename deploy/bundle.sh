#!/usr/bin/env bash
# Puts programs and everything they load beside glibc into one directory, which then runs on any
# machine whose glibc is new enough, without a package of ours or of others.
#
#   deploy/bundle.sh <destination> <programs and libraries> -- <files and directories of the tree>
#
# Binaries must have been linked with the RPATH $ORIGIN (the CMake preset "bundle" does). Prints the
# glibc that the bundle needs; fails above MOMENT_BUNDLE_GLIBC (2.36) or MOMENT_BUNDLE_MIB (40).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly GLIBC_LIMIT=${MOMENT_BUNDLE_GLIBC:-2.36} SIZE_LIMIT_MIB=${MOMENT_BUNDLE_MIB:-40}
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

for binary in "${binaries[@]}"; do
  objdump -p "$destination/bin/$(basename "$binary")" | grep -E '^ +RPATH +\$ORIGIN$' >/dev/null || {
    echo "bundle: $binary has no RPATH \$ORIGIN" >&2
    exit 1
  }
done
needed=$(objdump -T "$destination"/bin/* | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1)
size_mib=$(du -sm --apparent-size "$destination" | cut -f1)
echo "bundle: $size_mib MiB in $destination, needs glibc $needed"
[ "$(printf '%s\n' "$needed" "$GLIBC_LIMIT" | sort -V | tail -1)" = "$GLIBC_LIMIT" ] || {
  echo "bundle: glibc $needed is newer than $GLIBC_LIMIT" >&2
  exit 1
}
[ "$size_mib" -le "$SIZE_LIMIT_MIB" ] || {
  echo "bundle: more than $SIZE_LIMIT_MIB MiB" >&2
  exit 1
}
