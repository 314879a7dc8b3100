#!/usr/bin/env bash
# Every way to install, each in an environment of its own and used from outside the checkout, without torch and without
# a driver: pip install ., pip install -e ., and sdist -> wheel -> install.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

environment() { # name; prints its bin folder
	"$python" -m venv "$work/$1"
	"$work/$1/bin/pip" install -q --upgrade pip
	echo "$work/$1/bin"
}

try() { # bin folder, label
	cd "$work"
	"$1/python" "$checkout/build/try_install.py" "$2"
	"$1/asrconfig" doctor >doctor.txt || { cat doctor.txt; exit 1; }
}

bin=$(environment plain)
"$bin/pip" install -q "$checkout"
try "$bin" "pip install ."

bin=$(environment editable)
git -C "$checkout" ls-files -z | (cd "$checkout" && xargs -0 cp --parents -t "$(mkdir "$work/copy" && echo "$work/copy")")
"$bin/pip" install -q -e "$work/copy"
try "$bin" "pip install -e ."

bin=$(environment builder)
"$bin/pip" install -q build
"$bin/python" -m build --outdir "$work/dist" "$checkout" >"$work/build.txt" 2>&1 || { tail -n 40 "$work/build.txt"; exit 1; }
bin=$(environment wheel)
"$bin/pip" install -q "$work"/dist/*.whl
try "$bin" "sdist -> wheel -> install"
ls -l "$work/dist"
