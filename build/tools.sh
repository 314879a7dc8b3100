# Sourced by the wheel scripts: makes .wheel-tools, an environment with the pinned tools of build/tools.txt, and names it $tools.
tools=$PWD/.wheel-tools
if ! cmp -s build/tools.txt "$tools/made-of.txt"; then
	rm -rf "$tools"
	"${PYTHON:-python3}" -m venv "$tools"
	"$tools/bin/pip" install -q -r build/tools.txt
	cp build/tools.txt "$tools/made-of.txt"
fi
export ZIG_GLOBAL_CACHE_DIR="$tools/zig-cache" ZIG_LOCAL_CACHE_DIR="$tools/zig-cache"
