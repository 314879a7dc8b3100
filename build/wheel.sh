#!/usr/bin/env bash
# Builds the source distribution and from it the manylinux wheels (x86_64, aarch64; glibc 2.17) into build/out, or into
# the folder given. Needs Python and Go; the tools, and zig as the C compiler of both architectures, come into
# .wheel-tools. They are made of the last commit, and the same commit gives the same bytes: times are the commit's, and no
# path of this machine is in them.
set -euo pipefail
cd "$(dirname "$0")/.."
checkout=$PWD
output=$(realpath -m "${1:-build/out}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

source build/tools.sh
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export CGO_CFLAGS=-O2 SOURCE_DATE_EPOCH PYTHON="$tools/bin/python" CC="$checkout/build/zig-cc" GOOS=linux
umask 022
rm -rf "$output"
mkdir -p "$output"

git diff --quiet HEAD || echo "what is not committed is left out"
git clone -q . "$work/clone"
"$PYTHON" -m build --no-isolation --sdist --outdir "$work" "$work/clone" >"$work/sdist.txt" 2>&1 || { tail -n 40 "$work/sdist.txt"; exit 1; }
"$PYTHON" build/same_sdist.py "$work"/*.tar.gz "$output"
for architecture in x86_64:amd64 aarch64:arm64; do
	machine=${architecture%:*}
	mkdir "$work/$machine"
	tar -xzf "$output"/*.tar.gz -C "$work/$machine" --strip-components=1
	GOARCH=${architecture#*:} ZIG_TARGET="$machine-linux-gnu.2.17" "$PYTHON" -m build --no-isolation --wheel --outdir "$output" \
		-C=--build-option=--plat-name="manylinux_2_17_$machine" "$work/$machine" >"$work/$machine.txt" 2>&1 ||
		{ tail -n 40 "$work/$machine.txt"; exit 1; }
done
(cd "$output" && sha256sum ./*)
ls -l "$output"
