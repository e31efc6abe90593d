#!/usr/bin/env bash
# Makes a base image from Debian packages, for places where no image registry can be reached.
# Usage: docker/base-image.sh [TAG]     (root; needs debootstrap; about a minute)
set -euo pipefail
tag=${1:-ledgermq-base:bookworm}

say() { printf '[base-image] %s\n' "$*"; }
fail() { printf '[base-image] error: %s\n' "$*" >&2; exit 2; }

[ "$(id -u)" = 0 ] || fail "debootstrap needs root; run: sudo $0 $tag  (or pull an image and build with BASE_IMAGE=...)"
if ! command -v debootstrap >/dev/null; then
    command -v apt-get >/dev/null || fail "debootstrap is not installed and there is no apt-get to install it with"
    say "installing the Debian package debootstrap"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq debootstrap >/dev/null
fi

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
say "unpacking Debian bookworm with python3 (log: $work.log until it succeeds)"
# The default mirror of debootstrap is used; it honours http_proxy as apt does.
debootstrap --variant=minbase --include=python3 bookworm "$work" >"$work.log" 2>&1 || {
    tail -n 15 "$work.log" >&2
    fail "debootstrap failed"
}
rm -f "$work.log"
rm -rf "$work"/var/cache/apt/archives/*.deb "$work"/var/lib/apt/lists/* "$work"/usr/share/{doc,man,locale,info}/*
say "importing it as $tag"
tar -C "$work" -c . | docker import --change 'CMD ["python3"]' - "$tag" >/dev/null
docker image inspect --format '[base-image] {{index .RepoTags 0}} {{.Size}} bytes' "$tag"
