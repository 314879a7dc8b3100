#!/usr/bin/env bash
# Builds the source distribution and the manylinux wheels (x86_64, aarch64; glibc 2.17) into build/out, prints their sizes.
# Needs: pip install build ziglang. Both architectures are built on either: zig is a cross compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHON=${PYTHON:-python3}
export CC="$PWD/build/zig-cc" GOOS=linux
rm -rf build/out
"$PYTHON" -m build --sdist --outdir build/out .
for architecture in x86_64:amd64 aarch64:arm64; do
	machine=${architecture%:*}
	rm -rf .setuptools-build
	GOARCH=${architecture#*:} ZIG_TARGET="$machine-linux-gnu.2.17" \
		"$PYTHON" -m build --wheel --outdir build/out -C=--build-option=--plat-name="manylinux_2_17_$machine" .
done
ls -l build/out
