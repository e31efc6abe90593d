#!/usr/bin/env bash
# Writes constraints.txt anew: the newest versions that the ranges of pyproject.toml allow.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
pip=("$work/venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install -q --upgrade setuptools
"${pip[@]}" install -q --no-build-isolation -e '.[chaos,spark,dev]'
{
    sed -n '/^#/p' constraints.txt
    "${pip[@]}" freeze --exclude-editable --all | grep -v '^pip==' | LC_ALL=C sort -f
} >"$work/constraints.txt"
mv "$work/constraints.txt" constraints.txt
git --no-pager diff --stat -- constraints.txt
