#!/usr/bin/env bash
# Planted faults: each thing that deploy/check_bundle.sh checks is broken once, and must be named.
#
#   check_bundle_test.sh <check_bundle.sh> <C compiler>
set -euo pipefail
check=$1 compiler=$2
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
echo 'int helper(void) { return 0; }' >helper.c
echo 'int helper(void); int main(void) { return helper(); }' >main.c
"$compiler" -shared -fPIC -o libhelper.so helper.c

# program <bundle> <linker flag...>: a bundle of a program and its library.
program() {
  local bundle=$1
  shift
  mkdir -p "$bundle/bin"
  cp libhelper.so "$bundle/bin/"
  "$compiler" -o "$bundle/bin/program" main.c libhelper.so "$@"
}

# must_name <text> <command...>
must_name() {
  local text=$1 output
  shift
  if output=$("$@" 2>&1); then
    echo "passed, though it should say '$text': $output" >&2
    exit 1
  fi
  grep -qF -- "$text" <<<"$output" || {
    echo "does not say '$text': $output" >&2
    exit 1
  }
}

readonly OLD_TAGS=-Wl,--disable-new-dtags ORIGIN='-Wl,-rpath,$ORIGIN'
program good "$OLD_TAGS" "$ORIGIN"
"$check" good

program without_rpath
must_name 'program has no RPATH $ORIGIN' "$check" without_rpath
program runpath -Wl,--enable-new-dtags "$ORIGIN"
must_name 'program has no RPATH $ORIGIN' "$check" runpath

program incomplete "$OLD_TAGS" "$ORIGIN"
rm incomplete/bin/libhelper.so
must_name 'program needs libhelper.so' "$check" incomplete

must_name 'is newer than 2.2' env MOMENT_BUNDLE_GLIBC=2.2 "$check" good

truncate -s 3M good/ballast
must_name 'are more than 2' env MOMENT_BUNDLE_MIB=2 "$check" good

mkdir -p empty
must_name 'nothing in' "$check" empty
