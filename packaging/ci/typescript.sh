#!/bin/bash
# The TypeScript package as a newcomer gets it: built, packed and installed, against the daemon of
# target/debug, by each node that is there and by Bun; and its types.
#
#   bash packaging/ci/typescript.sh DIRECTORY      where the compiler and Bun are kept between runs:
#                                                  empty, or not there, or made by this
set -euo pipefail
cd "$(dirname "$0")/../.."
repository=$PWD
package=client/typescript

mkdir -p "$1"
tools=$(cd "$1" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# What the package is built with, and what else runs it.
wanted() { node -p "const of = require('./$package/package.json').devDependencies; Object.keys(of).map((one) => one + '@' + of[one]).join(' ')"; }
versions="$(wanted) bun@1.4.5"
if [ "$(cat "$tools/versions" 2>/dev/null)" != "$versions" ]; then
    if [ ! -e "$tools/node_modules" ] && [ -n "$(ls -A "$tools")" ]; then
        echo "typescript.sh: \`$tools\` has files and no programs of node: name a directory that is empty, or isn't there" >&2
        exit 2
    fi
    rm -rf "$tools/node_modules" "$tools/versions"
    # shellcheck disable=SC2086
    npm install --prefix "$tools" --no-audit --no-fund --no-save --loglevel=error $versions
    echo "$versions" >"$tools/versions"
fi
tsc=$tools/node_modules/.bin/tsc
bun=$tools/node_modules/.bin/bun

# Built from a copy, which finds the types of node there: building leaves files beside the sources.
mkdir "$place/built" "$place/project"
cp -r "$package" "$place/built/package"
rm -rf "$place/built/package/dist" "$place/built/package/node_modules"
ln -s "$tools/node_modules" "$place/built/node_modules"
(cd "$place/built/package" && "$tsc" --noEmit && "$tsc" && "$tsc" --project tests --noEmit false --outDir "$place/built/tests")
(cd "$place/built/package" && npm pack --silent --ignore-scripts --pack-destination "$place" >/dev/null)
echo '{ "private": true, "type": "module" }' >"$place/project/package.json"
(cd "$place/project" && npm install --offline --no-audit --no-fund --silent "$place"/agentd-*.tgz)
[ -e "$place/project/node_modules/agentd/LICENSE-MIT" ]

# The types of the installed package, as its users see them, and the README's blocks.
ln -s "$tools/node_modules/@types" "$place/project/node_modules/@types"
# shellcheck disable=SC2016
sed -n '/^```ts$/,/^```$/{/^```/!p}' "$package/README.md" >"$place/project/readme.ts"
cat >"$place/project/user.ts" <<'USER'
import { Harness, runSession } from "agentd";

const result = await runSession("x", { timeoutMs: 5 });
const usd: number | null = result.cost.usd;
const jobs: { job: string; state: "queued" | string }[] = await new Harness().jobs({ state: "running" });
for await (const event of new Harness().stream("x")) {
  if (event.type === "tool_start") console.log(event.name, event.input, usd, jobs);
}
const answer = await new Harness().request("session.rename", { session: "a", to: "b" });
console.log(answer.was);
// @ts-expect-error: its name is another one.
await runSession("x", { timeot: 5 });
// @ts-expect-error: seconds are elsewhere.
await runSession("x", { timeout: 5 });
// @ts-expect-error: there is no such state.
await new Harness().jobs({ state: "lost" });
// @ts-expect-error: it needs its fields.
await new Harness().request("session.rename");
USER
(cd "$place/project" && "$tsc" --noEmit --strict --target ES2022 --lib ES2023,ESNext.Disposable --module NodeNext --skipLibCheck false --types node user.ts readme.ts)
# The extension's types are those of pi, where that is there.
pi=$repository/target/ci/pi/pi-1.5.2/package
if [ -e "$pi" ]; then
    mkdir -p "$place/project/node_modules/@earendil-works"
    ln -s "$pi" "$place/project/node_modules/@earendil-works/pi-coding-agent"
    cp "$package/examples/pi/index.ts" "$place/project/extension.ts"
    (cd "$place/project" && "$tsc" --noEmit --strict --target ES2022 --lib ES2023,ESNext.Disposable --module NodeNext --skipLibCheck --types node extension.ts)
fi

cd "$place"
export AGENTD_REPOSITORY=$repository AGENTD_INSTALLED=$place/project AGENTD_BUN=$bun
# They wait most of their time.
run=(--test --test-reporter=dot --test-timeout=120000 --test-concurrency=4)
node "${run[@]}" "$place"/built/tests/tests/*.test.js
# Of every other node that is here, what depends on it.
for node in "$repository"/target/ci/pi/node-*/node_modules/node/bin/node; do
    [ -x "$node" ] || continue
    echo "with node $("$node" --version)"
    "$node" "${run[@]}" "$place"/built/tests/tests/{tables,turns}.test.js
done
