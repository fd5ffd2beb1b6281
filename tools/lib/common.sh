# Shared by the scripts in tools/: speech, places, one way to build. Source it; it runs nothing by itself.
#
# Everything said here goes to standard error, so that a script's standard output stays its result (a JSON document, say).

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
readonly root
readonly self="./tools/$(basename "$0")"

say() { printf '%s\n' "== $*" >&2; }
warn() { printf '%s\n' "warning: $*" >&2; }
# die MESSAGE...: one line each, exit 1. usage_error MESSAGE: exit 2, the caller typed something wrong.
die() { printf '%s\n' "error: $1" >&2; shift; [ $# -eq 0 ] || printf '       %s\n' "$@" >&2; exit 1; }
usage_error() { printf '%s\n' "error: $1" "       $self --help shows what it takes." >&2; exit 2; }

# Prints the comment block at the top of the calling script: the help text and the file's description are one text.
print_help() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }

# Ctrl-C ends the script, even where the command that it interrupted makes an ordinary failure of it (pip, ninja).
stop_at_interrupt() { trap 'trap - INT; kill -INT $BASHPID' INT; }
stop_at_interrupt

cores() { nproc 2>/dev/null || echo 2; }

# set_up [ARGS]: installs what is missing; quiet when nothing is.
set_up() {
  if [ "${KINTSUGI_SKIP_SETUP:-0}" = 1 ]; then
    say "set-up: skipped (KINTSUGI_SKIP_SETUP=1)"
  else
    "$root/tools/setup" "$@"
  fi
}

# True when build/PRESET was configured from these sources and from the presets as they are now.
_is_configured() {
  local dir=$1
  [ -f "$dir/build.ninja" ] && [ -f "$dir/.configured" ] &&
    [ ! "$root/CMakePresets.json" -nt "$dir/.configured" ] &&
    [ ! "$root/build/python/.ready" -nt "$dir/.configured" ] &&  # the Python package is built with what lies there
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"
}

_configure() {
  local preset=$1 dir=$root/build/$1 log=$root/build/configure-$1.log
  if [ -f "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    say "build/$preset belongs to sources in another place: starting it anew"
    rm -rf "$dir"
  fi
  say "configuring build/$preset"
  if ! (cd "$root" && cmake --preset "$preset") >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    die "configuring the $preset preset failed; the whole output is in ${log#"$root"/}" \
        "If a package is missing, run ./tools/setup; if the build folder is broken, remove build/$preset."
  fi
  touch "$dir/.configured"
}

# build PRESET [TARGET...]: configures where needed, then builds with ccache on all cores. Does nothing when up to date.
# One build of a tree at a time: a second one waits for the first.
build() {
  local preset=$1 dir=$root/build/$1
  shift
  mkdir -p "$root/build"
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  (
    stop_at_interrupt  # a subshell starts without its parent's traps
    if ! flock --nonblock 9; then
      say "another build of this tree is running: waiting for it"
      flock 9
    fi
    _is_configured "$dir" || _configure "$preset"
    say "building build/$preset on $(cores) cores${*:+: $*}"
    ninja -C "$dir" -j "$(cores)" "$@" >&2 9>&- ||
      die "the $preset build failed: the compiler's words are above, the first error first." \
          "Continue after a fix with the same command."
  ) 9>"$root/build/.lock"
}
