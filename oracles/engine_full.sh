#!/bin/sh
# Runs the engine's golden tests on all prompts and passages; everyday tests take a part of them.
# Needs the real model in WINDLASS_TEST_MODEL or in the cache. A few minutes.
set -eu
cd "$(dirname "$0")/.."
WINDLASS_ENGINE_FULL=1 WINDLASS_REQUIRE_FIXTURES=1 \
    exec cargo test --release -p windlass-worker --test engine -- --nocapture
