#!/bin/sh
# Installs Open WebUI, with a browser and what drives it, for the integration test of OpenAI's API:
# target/ci/open-webui. It is 8 GB and takes minutes, as its packages bring PyTorch. What is there
# already stays.
#
#   packaging/ci/install-open-webui.sh
set -eu

OPEN_WEBUI=0.12.4
PLAYWRIGHT=1.65.2

. "$(dirname "$0")/npm.sh"
place target/ci/open-webui

# The system's browser, as it gets what mends it; those of playwright come from elsewhere.
if ! command -v chromium >/dev/null; then
    as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
    quietly as_root apt-get update -qq
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
fi

if [ "$(cat "$dir/versions" 2>/dev/null)" != "$OPEN_WEBUI $PLAYWRIGHT" ]; then
    rm -rf "$dir/venv" "$dir/versions"
    # It takes no newer one.
    for python in python3.12 python3.11 python3; do
        if "$python" --version >/dev/null 2>&1; then break; fi
    done
    quietly "$python" -m venv "$dir/venv"
    quietly "$dir/venv/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "open-webui==$OPEN_WEBUI"
    # One of its packages names an older one, which isn't used here.
    quietly "$dir/venv/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "playwright==$PLAYWRIGHT"
    # They come last: their presence means that everything before them went well.
    echo "$OPEN_WEBUI $PLAYWRIGHT" >"$dir/versions"
fi

rm -f "$dir/log"
echo "Open WebUI $OPEN_WEBUI and playwright $PLAYWRIGHT are in $dir, Chromium is $(command -v chromium)"
