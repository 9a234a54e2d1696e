#!/bin/sh
# Installs both dialects of the pi coding agent for the integration tests, with a node that runs
# them: DIR/pi-0.73.1/bin/pi and DIR/pi-1.5.2/bin/pi. What is there already stays.
#
#   packaging/ci/install-pi.sh [DIR]        DIR: target/ci/pi, where the tests look by default
#
# The newer package is unpacked rather than installed: its bundle needs nothing else, and not all of
# the dependencies that it names are in every registry.
set -eu

OLD=0.73.1
NEW=1.5.2

. "$(dirname "$0")/npm.sh"
place "${1:-target/ci/pi}"

# A program named `pi` that runs a script with our own node. It comes last: its presence means that
# everything before it went well.
wrap() {
    mkdir -p "$dir/$1/bin"
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" "$2" >"$dir/$1/bin/pi.new"
    chmod +x "$dir/$1/bin/pi.new"
    quietly "$dir/$1/bin/pi.new" --version </dev/null
    mv "$dir/$1/bin/pi.new" "$dir/$1/bin/pi"
}

find_node

if ! [ -x "$dir/pi-$OLD/bin/pi" ]; then
    rm -rf "$dir/pi-$OLD"
    install "$dir/pi-$OLD" "@mariozechner/pi-coding-agent@$OLD"
    wrap "pi-$OLD" "$dir/pi-$OLD/node_modules/@mariozechner/pi-coding-agent/dist/cli.js"
fi

if ! [ -x "$dir/pi-$NEW/bin/pi" ]; then
    rm -rf "$dir/pi-$NEW"
    mkdir -p "$dir/pi-$NEW"
    (cd "$dir/pi-$NEW" && quietly npm pack --silent "@earendil-works/pi-coding-agent@$NEW")
    tar -xzf "$dir/pi-$NEW"/*.tgz -C "$dir/pi-$NEW"
    wrap "pi-$NEW" "$dir/pi-$NEW/package/dist/bundle/cli.js"
fi

rm -f "$dir/log"
echo "pi $OLD and $NEW are in $dir"
