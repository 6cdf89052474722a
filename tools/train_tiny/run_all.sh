#!/usr/bin/env bash
# Train and evaluate openjet-tiny on one GPU; what is worth keeping lands in OUT (each file < 16 MB).
#   tools/train_tiny/run_all.sh OUT SECONDS [TOKENIZER [FINAL.pt to go on from]]
set -eu
out=$1 seconds=$2 tokenizer=${3:+--tokenizer $3} after=${4:+--after $4}
work=$(mktemp -d)
export PYTHONUNBUFFERED=1
python3 -m tools.train_tiny.train "$work" --seconds "$seconds" $tokenizer $after
for name in final early; do
    [ -f "$work/$name.pt" ] || continue
    split -b 15000000 "$work/$name.pt" "$out/$name.pt."
done
cp "$work/tokenizer.json" "$work/train.log" "$out/"
timeout 150 python3 -m tools.train_tiny.evaluate "$work/final.pt" "$work/tokenizer.json" "$out/eval.json" --documents 32
