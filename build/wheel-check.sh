#!/usr/bin/env bash
# Checks what build/wheel.sh made: builds it a second time and compares, looks into the wheels (check_wheels.py), and
# installs the one for this machine into a new environment, where it is used.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ls build/out/*.whl >/dev/null 2>&1 || bash build/wheel.sh >/dev/null

bash build/wheel.sh "$work/again" >/dev/null
source build/tools.sh
"$tools/bin/python" build/check_wheels.py build/out "$work/again"
cmp build/out/*.tar.gz "$work"/again/*.tar.gz && echo "sdist: the same twice"

"$python" -m venv "$work/venv"
start=$(date +%s.%N)
"$work/venv/bin/pip" install -q --no-index --no-deps build/out/*_"$(uname -m)".whl
seconds=$(echo "$(date +%s.%N) - $start" | bc)
cd "$work"
"$work/venv/bin/python" "$OLDPWD/build/try_install.py" "pip install of the wheel: $seconds s"
awk "BEGIN { exit !($seconds <= 3) }" || { echo "failed: pip install took $seconds s, more than 3 s"; exit 1; }
