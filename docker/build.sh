#!/usr/bin/env bash
# Builds the image: collects wheels on the host, picks or makes a base image, runs docker build.
# Usage: docker/build.sh      environment: BASE_IMAGE, IMAGE (default ledgermq:latest), VENV (default .venv)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
image=${IMAGE:-ledgermq:latest}
default_base=python:3.11-slim-bookworm
own_base=ledgermq-base:bookworm
wheels=docker/wheels

say() { printf '[image] %s\n' "$*"; }
fail() { printf '[image] error: %s\n' "$*" >&2; exit 2; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
present() { docker image inspect "$1" >/dev/null 2>&1; }

docker version >/dev/null 2>&1 || fail "no Docker engine answers; run: docker/engine.sh start"
[ -x "$venv/bin/python" ] || fail "$venv is missing; run: make setup"

choose_base() { # prints the base image
    if [ -n "${BASE_IMAGE:-}" ]; then echo "$BASE_IMAGE"; return; fi
    if present "$default_base"; then echo "$default_base"; return; fi
    if present "$own_base"; then echo "$own_base"; return; fi
    if timeout 120 docker pull -q "$default_base" >/dev/null 2>&1; then echo "$default_base"; return; fi
    say "$default_base can not be pulled here: making $own_base from Debian packages" >&2
    bash docker/base-image.sh "$own_base" >&2
    echo "$own_base"
}

collect_dependencies() { # wheels for CPython 3.11 on Linux, whatever the host's Python is
    local stamp key arch
    stamp=$wheels/dependencies/.key
    key=$(cat pyproject.toml constraints.txt docker/build.sh | sha256sum | cut -c1-16)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then return; fi
    say "collecting wheels of the dependencies"
    rm -rf "$wheels/dependencies"
    mkdir -p "$wheels/dependencies"
    arch=$(uname -m)
    "$venv/bin/python" - >"$wheels/requirements.txt" <<'PY'
import tomllib

with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["project"]["dependencies"] + ["pip"]))
PY
    # PySyncObj is published as source only; it is pure Python, so its wheel serves every Python.
    pip wheel -q --no-deps --no-build-isolation -c constraints.txt -w "$wheels/dependencies" pysyncobj \
        || fail "the wheel of PySyncObj could not be built"
    pip download -q -d "$wheels/dependencies" -c constraints.txt --only-binary=:all: \
        --find-links "$wheels/dependencies" \
        --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
        --platform "manylinux2014_$arch" --platform "manylinux_2_17_$arch" --platform "manylinux_2_28_$arch" --platform any \
        -r "$wheels/requirements.txt" || fail "pip could not collect the wheels"
    echo "$key" >"$stamp"
}

collect_project() { # from a copy, so that nothing is left behind in the checkout
    local work package
    work=$(mktemp -d)
    cp pyproject.toml README.md LICENSE "$work"
    for package in */__init__.py; do
        find "${package%/*}" -type f -not -path '*/__pycache__/*' -exec cp --parents -t "$work" {} +
    done
    rm -rf "$wheels/project"
    pip wheel -q --no-deps --no-build-isolation -w "$wheels/project" "$work" || { rm -rf "$work"; fail "the project's wheel could not be built"; }
    rm -rf "$work"
}

base=$(choose_base)
collect_dependencies
collect_project
say "building $image on $base"
# Both builders work; the classic one is there on every engine.
DOCKER_BUILDKIT=${DOCKER_BUILDKIT:-0} docker build -q -t "$image" --build-arg "BASE_IMAGE=$base" docker >docker/wheels/build.log 2>&1 || {
    tail -n 20 docker/wheels/build.log >&2
    fail "docker build failed (full log: docker/wheels/build.log)"
}
docker image inspect --format "[image] $image {{.Id}} {{.Size}} bytes" "$image"
