#!/usr/bin/env bash
# Creates the virtual environment with the pinned dependencies and the ledgermq command.
# Usage: scripts/setup.sh DIRECTORY    (make calls it; environment: PYTHON=interpreter)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
log=$venv/setup.log

say() { printf '[setup] %s\n' "$*"; }
fail() { printf '[setup] error: %s\n' "$*" >&2; exit 2; }

good_python() { # true if $1 is an interpreter that we support
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local name
    for name in ${PYTHON:-python3.11 python3.12 python3 python3.13 python3.14}; do
        if good_python "$name"; then command -v "$name"; return; fi
    done
    return 1
}

python=$(find_python) || fail "no Python >= 3.11 found; install one (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3 ..."

# Debian splits venv and ensurepip off into a package of its own.
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "$python has no venv module: installing the Debian package python$version-venv (we are root)"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv" >/dev/null ||
            fail "apt-get could not install python$version-venv"
    else
        fail "$python has no venv module; run: sudo apt-get install python$version-venv"
    fi
fi

if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" || fail "could not create $venv"
fi
rm -f "$venv/.ready"

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
run_pip() {
    "$venv/bin/python" -m pip install -q -c constraints.txt "$@" >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "pip could not install the dependencies (full log: $log). Without a network: set PIP_NO_INDEX=1 and PIP_FIND_LINKS to a folder of wheels."
    }
}

say "installing pinned dependencies (the first time: a few hundred MB, about a minute)"
: >"$log"
run_pip setuptools
run_pip --no-build-isolation -e '.[chaos,spark,dev]'
touch "$venv/.ready"
say "ready: $venv/bin/ledgermq --help"
