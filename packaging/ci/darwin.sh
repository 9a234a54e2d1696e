#!/bin/bash
# Lints the workspace for macOS, which holds a type check, on any machine.
#
#   bash packaging/ci/darwin.sh [--all-targets] TARGET…     aarch64-apple-darwin, x86_64-apple-darwin
#
# With `--all-targets` the tests and benches, too.
# A type check needs no machine code, so what dependencies have in C and assembler is "compiled" to
# empty files by a compiler of two lines, and Apple's SDK is not needed. Nothing is linked or run.
# Where the standard library of a target can't be fetched, that is said, and it isn't a failure:
# the job `check` of .github/workflows/macos.yml does the same.
set -euo pipefail
cd "$(dirname "$0")/../.."

all=()
if [ "${1:-}" = --all-targets ]; then
    all=("$1")
    shift
fi

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
cat >"$tools/cc" <<'CC'
#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then : >"$2"; fi
    shift
done
CC
cat >"$tools/ar" <<'AR'
#!/bin/sh
for word in "$@"; do
    case $word in *.a) printf '!<arch>\n' >"$word" ;; esac
done
AR
chmod +x "$tools/cc" "$tools/ar"

for target in "$@"; do
    if ! timeout 300 rustup target add "$target"; then
        echo "left out: the standard library for $target can't be had here"
        continue
    fi
    name=${target//-/_}
    env "CC_$name=$tools/cc" "CXX_$name=$tools/cc" "AR_$name=$tools/ar" \
        cargo clippy --workspace "${all[@]}" --quiet --target "$target" -- -D warnings
    echo "$target: no warnings"
done
