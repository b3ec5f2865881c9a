#!/usr/bin/env bash
# Builds a wheel for manylinux2014 in runtime/python/dist, with the linker of zig, and checks it. Needs Rust and Python.
set -euo pipefail
cd "$(dirname "$0")"

venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet maturin ziglang auditwheel
PATH="$venv/bin:$PATH" maturin build --release --zig --compatibility manylinux2014 --out dist
for wheel in dist/*.whl; do
    "$venv/bin/auditwheel" show "$wheel"
    bytes=$(stat -c %s "$wheel")
    echo "$wheel: $bytes bytes"
    test "$bytes" -lt $((15 << 20))
done
