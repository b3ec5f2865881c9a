#!/usr/bin/env bash
# Measures `import hgnnc` in fresh interpreters: the median of 11, NumPy included, and NumPy alone.
set -euo pipefail
for module in numpy hgnnc; do
    for _ in $(seq 11); do
        "${PYTHON:-python3}" -c "import time; t = time.perf_counter(); import $module; print(f'{time.perf_counter() - t:.3f}')"
    done | sort | sed -n "6s/$/ s for import $module/p"
done
