#!/usr/bin/env bash
# check_symbols.sh <libmoment.so> <glibc> <glibcxx> <cxxabi>: the library defines moment_* and nothing
# else, and needs no newer symbol versions than these (docs/reference/client.md states them).
set -euo pipefail
library=$1
failed=0

foreign=$(nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | grep -v '^moment_' || true)
if [ -n "$foreign" ]; then
  echo "$library exports what is not its own:"
  echo "$foreign" | c++filt | head -20
  failed=1
fi
exported=$(nm -D --defined-only "$library" | grep -c ' T moment_' || true)
echo "exported functions: $exported"
[ "$exported" -gt 0 ] || failed=1

# newest_needed <prefix>: the highest version of GLIBC, GLIBCXX or CXXABI among undefined symbols.
newest_needed() {
  objdump -T "$library" | grep -oE "\($1_[0-9.]+\)|$1_[0-9.]+" | tr -d '()' | sed "s/^$1_//" |
    sort -uV | tail -1
}

check() {
  local name=$1 limit=$2 needed
  needed=$(newest_needed "$name")
  echo "$name: needs ${needed:-nothing}, promised at most $limit"
  [ -z "$needed" ] || [ "$(printf '%s\n' "$needed" "$limit" | sort -V | tail -1)" = "$limit" ] || {
    echo "$library needs ${name}_$needed"
    failed=1
  }
}
check GLIBC "$2"
check GLIBCXX "$3"
check CXXABI "$4"
exit $failed
