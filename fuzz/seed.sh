#!/bin/sh
# Fills corpus/gguf with tiny models and their pieces, each behind the byte that the target takes as
# its choice of file length.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p corpus/gguf
run() { (cd .. && cargo run --quiet --release -p windlass-gguf --example "$@"); }
small="--layers 1 --embd 32 --ffn 32 --heads 1 --kv-heads 1 --head-dim 4 --context 32"
n=0
for options in "" "--tied --rope-freqs" "--type F16 --tokenizer gpt2" "--type Q8_0" "--type Q4_0" "--type Q4_1"; do
    # shellcheck disable=SC2086
    run tiny -- "$work/$n.gguf" $small $options
    run cut -- "$work/$n.gguf" "$work/$n" >"$work/list"
    for file in "$work/$n.gguf" "$work/$n"/*.gguf; do
        { printf '\0'; cat "$file"; } >"corpus/gguf/$n-$(basename "$file")"
    done
    n=$((n + 1))
done
ls corpus/gguf | wc -l
