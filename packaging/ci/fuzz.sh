#!/bin/bash
# Bytes of all sorts for what agentd reads from others: each target of tests/fuzz for its share of the
# time, beginning with the kept corpus.
#
#   bash packaging/ci/fuzz.sh [SECONDS [TARGET…]]     600 seconds for all of them together
#
# What a target finds is below target/fuzz/found, with the words of the check above it: it goes into
# tests/fuzz/corpus/TARGET under a name that says what it is, beside the mend. The checks are in the
# crates, as `fuzzing`, and `cargo test` replays the corpus by them without any of this.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

seconds=${1:-600}
shift
if ! command -v cargo-fuzz >/dev/null 2>&1; then
    echo "skipped: needs cargo-fuzz (cargo install --locked cargo-fuzz)"
    # As for tests: where everything is to be there, that is a failure.
    [ "${AGENTD_TEST_NEEDS:-}" != all ]
    exit
fi

# Coverage is asked for by a flag of rustc that a stable one doesn't have by itself.
cargo=(cargo)
if cargo +nightly --version >/dev/null 2>&1; then
    cargo=(cargo +nightly)
else
    export RUSTC_BOOTSTRAP=1
fi

# libFuzzer beside what the product is built with: no other version of anything.
cp Cargo.lock tests/fuzz/Cargo.lock || exit 1
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' tests/fuzz/Cargo.toml)
fi
share=$((seconds / ${#targets[@]}))
[ "$share" -gt 0 ] || share=1

# Nothing here is unsafe that a sanitizer would see, and without one it is several times as fast.
"${cargo[@]}" fuzz build --sanitizer none --fuzz-dir tests/fuzz --target-dir target/fuzz >target/fuzz.log 2>&1 || {
    tail -n 40 target/fuzz.log
    exit 1
}
programs=target/fuzz/$("${cargo[@]}" -vV | sed -n "s/^host: //p")/release

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The store and the spool write files: in memory, if there is room.
if [ -w /dev/shm ]; then
    scratch=$(mktemp -d /dev/shm/agentd-fuzz-XXXXXX)
    trap 'rm -rf "$work" "$scratch"' EXIT
    export TMPDIR=$scratch
fi

status=0
for target in "${targets[@]}"; do
    found=target/fuzz/found/$target
    mkdir -p "$work/$target" "$found"
    # New inputs go into the first directory, which is not kept.
    "$programs/$target" "$work/$target" "tests/fuzz/corpus/$target" -max_total_time="$share" \
        -max_len=32768 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$found/" \
        >"$work/$target.log" 2>&1
    ended=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")
    if [ $ended = 0 ]; then
        echo "$target: ${runs:-?} runs in $share s, nothing found"
        continue
    fi
    status=1
    # The words of the check, or libFuzzer's own about time and memory.
    grep -avE '^(#[0-9]|INFO: |[[:space:]]NEW_FUNC)' "$work/$target.log" | head -c 8192
    case $ended in
        70 | 71 | 77) echo "$target: FOUND something after ${runs:-?} runs, see $found" ;;
        *) echo "$target: broke off after ${runs:-?} runs with status $ended" ;;
    esac
done
exit $status
