#!/bin/sh
# Everything there is to find out on a machine with a GPU, in one command.
#
#   tests/gpu/run.sh HGNNC DATA [ARGUMENT...]
#
# HGNNC is a release binary (`cargo build --release`), DATA the folder with the datasets; the rest goes to compare.py (see
# `compare.py --help`), whose tables belong into docs/gpu-results.md. Needed are Python 3.11 and, for the peers, PyTorch
# and PyTorch Geometric. Where compute-sanitizer is installed, two training steps of every kind of layer run under it.
# With `--device ptx-interp` all of it but the peers runs on a machine without a GPU, if HGNNC has the interpreter
# (`cargo build --release --features ptx-interp`).
#
# Exit code 1 where anything is not as it should be.
set -u
if [ $# -lt 2 ]; then
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
hgnnc=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
data=$(cd "$2" && pwd) || exit 2
shift 2

date
uname -srm
"$hgnnc" --version || exit 2
case " $* " in
*ptx-interp*)
    # A device is opened before the model is read, which is empty here.
    if refusal=$("$hgnnc" train /dev/null --device ptx-interp 2>&1 | grep "no PTX interpreter"); then
        echo "$refusal" >&2
        exit 2
    fi
    ;;
esac
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
echo

failed=0
python3 "$here/compare.py" --hgnnc "$hgnnc" --data "$data" "$@" || failed=1

echo
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
        for model in han/acm rgcn/imdb rgat/acm hgt/acm sage/cora_max; do
            folder=$data/$(basename "${model%_max}")
            [ -d "$folder" ] || continue
            if log=$(compute-sanitizer --tool $tool --error-exitcode 9 "$hgnnc" train "$here/../../examples/$model.hgnn" \
                --data "$folder" --device cuda --epochs 2 --quiet 2>&1); then
                echo "compute-sanitizer $tool, $model: fine"
            else
                failed=1
                echo "compute-sanitizer $tool, $model: FAILED"
                echo "$log" | tail -40
            fi
        done
    done
else
    echo "skipped: compute-sanitizer is not installed"
fi
exit $failed
