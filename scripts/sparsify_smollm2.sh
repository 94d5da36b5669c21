#!/usr/bin/env bash
# A sparse SmolLM2-135M on one data-centre GPU: the strict run that made the one which comes along, and
# a published-style one, each with its dense control.
#
#   scripts/sparsify_smollm2.sh MODEL TEXT OUT [MINUTES]
#
# MODEL is a folder with the bundled model (headcount cache lists it), TEXT the Wikipedia file, OUT a
# folder that stays between calls. Every call works for MINUTES at most (9), keeps its state, and the
# same call goes on; it says when all is done. What is to be kept is then in OUT/strict and
# OUT/published: sparse.json, adapters-*.safetensors (each under 16 MiB), log.csv, figure.png.
set -euo pipefail
model=$1 text=$2 out=$3 minutes=${4:-9}
python=${PYTHON:-python3}
end=$((SECONDS + minutes * 60))

sparsify() { # NAME, further options
  local name=$1 left=$(((end - SECONDS) / 60))
  shift
  if [ -e "$out/$name/figure.png" ]; then
    echo "$name is done"
    return
  fi
  if [ "$left" -lt 1 ]; then
    echo "time is up: run the same command again"
    exit 0
  fi
  "$python" -m headcount.cli sparsify --model "$model" --base smollm2-135m-q4 --text "$text" \
    --text-source "English Wikipedia, https://en.wikipedia.org" --text-licence "CC BY-SA" \
    --control "$out/control-$name" --out "$out/$name" --minutes "$left" --quiet "$@"
}

# the strict constraint: a dense control tuned on the same text for the same steps
sparsify strict --constraint control
# the published style: the loss of the original model, without distillation
sparsify published --constraint original --tolerance 0.05 --steps 600 --batch 64 --own 0 \
  --distil 0 --set constraint_blocks=128 rate=0.5 margin=0.01 dense_share=0.15 anneal=0.4 pressure=0 noise=1 \
  check_every=10 evaluate_every=50
