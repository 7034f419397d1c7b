#!/usr/bin/env bash
# Holds a bundle (deploy/bundle.sh) to what its users rely on; says all that is wrong and exits 1.
#
#   deploy/check_bundle.sh <bundle>
#
#   - every shared object that something in bin/ needs is there, or glibc's;
#   - programs and libraries of ours look beside themselves first: RPATH $ORIGIN (not RUNPATH, which
#     their libraries would not inherit);
#   - no symbol of a newer glibc than MOMENT_BUNDLE_GLIBC (2.36, Debian 12's);
#   - at most MOMENT_BUNDLE_MIB (40) in all.
set -euo pipefail
readonly GLIBC_LIMIT=${MOMENT_BUNDLE_GLIBC:-2.36} SIZE_LIMIT_MIB=${MOMENT_BUNDLE_MIB:-40}
# Of glibc: always the machine's own.
readonly GLIBC='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil)\.so'
bundle=$1
failed=0

fail() {
  echo "check_bundle: $*" >&2
  failed=1
}

is_ours() { [[ $1 == libmoment* || $1 != *.so* ]]; }

check_object() {
  local object=$1 name dynamic needed
  name=$(basename "$object")
  dynamic=$(objdump -p "$object")
  while read -r needed; do
    [[ $needed =~ $GLIBC ]] || [ -e "$bundle/bin/$needed" ] ||
      fail "$name needs $needed, which the bundle does not have"
  done < <(awk '$1 == "NEEDED" { print $2 }' <<<"$dynamic")
  ! is_ours "$name" || grep -qE '^ +RPATH +\$ORIGIN$' <<<"$dynamic" ||
    fail "$name has no RPATH \$ORIGIN"
}

[ -n "$(ls "$bundle/bin" 2>/dev/null)" ] || {
  echo "check_bundle: nothing in $bundle/bin" >&2
  exit 1
}
for object in "$bundle"/bin/*; do
  check_object "$object"
done
glibc=$(objdump -T "$bundle"/bin/* | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1)
size_mib=$(du -sm --apparent-size "$bundle" | cut -f1)
echo "bundle: $size_mib MiB in $bundle, needs glibc $glibc"
[ "$(printf '%s\n' "$glibc" "$GLIBC_LIMIT" | sort -V | tail -1)" = "$GLIBC_LIMIT" ] ||
  fail "glibc $glibc is newer than $GLIBC_LIMIT"
[ "$size_mib" -le "$SIZE_LIMIT_MIB" ] || fail "$size_mib MiB are more than $SIZE_LIMIT_MIB"
exit "$failed"
