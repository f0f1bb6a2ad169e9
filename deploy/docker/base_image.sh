#!/bin/sh
# Makes the image that ours are built on where no image registry can be reached: a Debian with Python 3.11 from the package
# archive that this machine's own apt uses. Elsewhere it is not needed: python:3.11-slim-bookworm is pulled.
#
#   sudo deploy/docker/base_image.sh && BASE_IMAGE=local/python:3.11 docker-compose up
#
# Needs root, debootstrap and a running Docker. The tree is kept as a tar file in PHOTON_IMAGE_CACHE (~/.cache/photon), so that
# a second call takes seconds. The image trusts all authorities that this machine trusts: never push it anywhere.
set -eu

image=${1:-local/python:3.11}
suite=bookworm
cache=${PHOTON_IMAGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/photon}
tree=$cache/base-image-$suite-2.tar
bundle=/etc/ssl/certs/ca-certificates.crt

fail() { echo "base_image: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "must be root: debootstrap makes device files and owners"
command -v debootstrap >/dev/null || fail "debootstrap not found: apt-get install debootstrap"
docker info >/dev/null 2>&1 || fail "Docker does not answer: start it first"
mkdir -p "$cache"

if [ ! -s "$tree" ]; then
  # "Get:1 URL suite/component ..." in apt's plan: the archive as this machine's own sources name it
  mirror=$(apt-get indextargets --format '$(SITE)|$(RELEASE)|$(CREATED_BY)' |
    awk -F'|' -v suite=$suite '$2 == suite && $3 == "Packages" { print $1; exit }')
  [ -n "$mirror" ] || fail "no source of Debian $suite in this machine's apt; use a machine that can pull python:3.11-slim-bookworm"
  work=$(mktemp -d "$cache/base-image.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates $suite "$work/tree" "$mirror" \
    >"$work/log" 2>&1 || { tail -5 "$work/log" >&2; fail "debootstrap failed"; }
  rm -f "$work"/tree/usr/lib/python3*/EXTERNALLY-MANAGED
  # Files that no service reads, else half of the image
  rm -rf "$work"/tree/usr/share/locale "$work"/tree/usr/share/doc "$work"/tree/usr/share/man "$work"/tree/usr/share/info
  ln -sf python3 "$work/tree/usr/bin/python"
  rm -rf "$work"/tree/var/cache/apt/archives/*.deb "$work"/tree/var/lib/apt/lists/*
  # Same trust and settings as this machine, even behind a proxy that signs traffic itself
  if [ -d /usr/local/share/ca-certificates ]; then
    cp -r /usr/local/share/ca-certificates/. "$work/tree/usr/local/share/ca-certificates/"
  fi
  if [ -s $bundle ]; then cp $bundle "$work/tree$bundle"; fi
  for file in /etc/pip.conf /etc/apt/apt.conf.d/*proxy* /root/.m2/settings.xml; do
    if [ -f "$file" ]; then mkdir -p "$work/tree$(dirname "$file")" && cp "$file" "$work/tree$file"; fi
  done
  find /etc/apt/sources.list.d -name 'debian*' -exec cp {} "$work/tree/etc/apt/sources.list.d/" \; 2>/dev/null || true
  tar -C "$work/tree" -cf "$work/tar" --exclude=./dev/* .
  mv "$work/tar" "$tree"
fi
docker import -c 'CMD ["python3"]' -c "ENV PIP_CERT=$bundle" -c "ENV SSL_CERT_FILE=$bundle" - "$image" <"$tree" >/dev/null
echo "$image"
