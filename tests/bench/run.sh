#!/bin/sh
# Trains the peers' models and prints their times next to the peers' figures (peers.csv).
#
#   tests/bench/run.sh [EPOCHS] [MODEL...]        (30 epochs of all models; a model is `han`, `han-acm`, …)
#
# HGNNC       the command                    (default: hgnnc of the release build)
# HGNNC_DATA  folder with acm and imdb       (default: ../shared/data beside the repository)
# THREADS     numbers of threads             (default: "1 2")
#
# DBLP is synthetic, of the published sizes: `hgnnc data synth dblp`. The peers took their loss over all target
# vertices; here it is over the training part of the dataset's split. That does not shorten an epoch: vertices
# without a part in the loss have a weight of zero, and take the same work. The peers' figures were taken with two
# threads of a Zen 5 server processor: on another machine compare them with that in mind.
set -eu
cd "$(dirname "$0")/../.."
epochs=${1:-30}
[ $# -gt 0 ] && shift
hgnnc=${HGNNC:-${CARGO_TARGET_DIR:-target}/release/hgnnc}
data=${HGNNC_DATA:-../shared/data}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wanted="${*:-han rgcn rgat}"

is_wanted() {
    for w in $wanted; do
        case "$1" in "$w" | "$w"-*) return 0 ;; esac
    done
    return 1
}

for file in tests/bench/*.hgnn; do
    name=$(basename "$file" .hgnn)
    is_wanted "$name" || continue
    dataset=${name#*-}
    folder=$data/$dataset
    if [ "$dataset" = dblp ]; then
        folder=$work/dblp
        [ -d "$folder" ] || "$hgnnc" data synth dblp "$folder" >&2
    fi
    for threads in ${THREADS:-1 2}; do
        "$hgnnc" train "$file" --data "$folder" --epochs "$epochs" --threads "$threads" --quiet \
            --report "$work/$name-$threads.json"
    done
done

python3 - "$work" <<'PY'
import csv, glob, json, os, sys

row = "{:<5} {:<5} {:<16} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9}".format
print(row("data", "model", "who", "epoch ms", "min", "fwd", "bwd", "infer", "RSS MiB", "arena MiB"))
ours = {}
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
    model, dataset, threads = os.path.basename(path)[:-5].split("-")
    with open(path) as file:
        ours.setdefault((dataset, model), []).append((int(threads), json.load(file)))
with open("tests/bench/peers.csv") as file:
    peers = list(csv.DictReader(file))
for (dataset, model), runs in ours.items():
    for p in peers:
        if (p["dataset"], p["model"]) == (dataset, model):
            times = (p["epoch_ms"], p["epoch_min_ms"], p["fwd_ms"], p["bwd_ms"], p["infer_ms"], p["rss_mib"])
            print(row(dataset, model, p["peer"] + " 2T", *times, ""))
    for threads, r in sorted(runs, key=lambda run: run[0]):
        times = (r["epoch_ms"]["median"], r["epoch_ms"]["min"])
        times += tuple(r[k]["median"] for k in ("forward_ms", "backward_ms", "infer_ms"))
        memory = tuple(r[k] / 2**20 for k in ("peak_rss_bytes", "arena_bytes"))
        print(row(dataset, model, f"hgnnc {threads}T", *(f"{t:.2f}" for t in times), *(f"{m:.0f}" for m in memory)))
PY
