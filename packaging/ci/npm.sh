# What the scripts install-*.sh do alike; each reads this file. `place DIR` comes first.

# place DIR: from here on the directory is $dir, whose name is whole.
place() {
    cd "$(dirname "$0")/../.."
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
}

# Says what a command said only if it failed.
quietly() {
    "$@" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
}

# install PREFIX PACKAGE…
install() {
    prefix=$1
    shift
    mkdir -p "$prefix"
    quietly npm install --prefix "$prefix" --no-audit --no-fund --no-save "$@"
}

# find_node: $node is a node that runs what is installed: the one that install-pi.sh puts into
# target/ci/pi, where that was run before, else one of our own.
find_node() {
    version=22
    for node in "$(dirname "$dir")/pi" "$dir"; do
        node=$node/node-$version/node_modules/node/bin/node
        if "$node" --version >/dev/null 2>&1; then
            return
        fi
    done
    rm -rf "$dir/node-$version"
    install "$dir/node-$version" "node@$version"
    quietly "$node" --version
}
