#!/usr/bin/env bash
# Unpacks Debian packages into a folder, and installs nothing: ci/unpack.sh <folder> <package>...
# Fails without a message if there is no apt, or apt does not have the packages.
set -euo pipefail
mkdir -p "$1" && cd "$1" && shift
[ "$(cat unpacked 2>/dev/null)" != "$*" ] || exit 0
command -v apt-get >/dev/null && command -v dpkg >/dev/null || exit 1
{
    [ "$(id -u)" != 0 ] || apt-get update -q
    apt-get download -q "$@"
} >/dev/null 2>&1 || exit 1
for package in ./*.deb; do dpkg -x "$package" .; done
rm ./*.deb
echo "$*" >unpacked
