#!/usr/bin/env bash
# Installs what it needs, builds momentd, and trains a small GPT on text of this machine three ways:
# with torch.optim.AdamW, with momentd, and with momentd while the trainer is killed half way.
# Exits 1 if the three are not bit-identical. Arguments are passed on to quickstart/quickstart.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
python=${MOMENT_VENV:-$root/build/venv}/bin/python

deploy/install-deps.sh
started=$SECONDS
echo "quickstart: building (build/release)"
cmake --preset release >build/release.configure.log ||
  { cat build/release.configure.log; exit 1; }
cmake --build --preset release -j "${MOMENT_JOBS:-$(nproc)}" --target momentd momentctl moment
echo "quickstart: built in $((SECONDS - started)) s"

export MOMENTD_BINARY="$root/build/release/bin/momentd"
export MOMENTD_LIBRARY="$root/build/release/lib/libmoment.so"
export PYTHONPATH="$root/client/python${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" deploy/quickstart/quickstart.py --out build/quickstart "$@"
