#!/usr/bin/env bash
# check_pkg_config.sh <prefix> <libdir> <folder>: builds and runs the C consumer with the flags that
# pkg-config tells, from a tree that was moved after its installation.
set -euo pipefail
prefix=$1 libdir=$2 folder=$3
rm -rf "$folder"
mkdir -p "$folder"
cp -a "$prefix" "$folder/moved"
export PKG_CONFIG_PATH="$folder/moved/$libdir/pkgconfig"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -o "$folder/consumer" \
  "$(dirname "$0")/consumer/consumer.c" $(pkg-config --cflags --libs moment)
LD_LIBRARY_PATH="$folder/moved/$libdir" "$folder/consumer"
