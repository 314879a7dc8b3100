#!/usr/bin/env bash
# Installs and uses the wheels of build/out in Debian systems old and new, x86_64 and (emulated) aarch64, without network.
# Needs root, debootstrap and qemu-user-static. The systems stay in .systems (250 MB each): make clean removes them.
# Where a system's Python is too old for the package (3.10), the library is loaded and plans without it.
set -euo pipefail
cd "$(dirname "$0")/.."
golden=capi/testdata/plan.make.json

system() { # suite, architecture; makes it once
	local root=.systems/$1-$2
	if [ ! -e "$root/ready" ]; then
		rm -rf "$root"
		mkdir -p "$root"
		debootstrap --variant=minbase --arch="$2" --include=python3,python3-venv "$1" "$root" >"$root.log" 2>&1 ||
			{ tail -n 5 "$root.log"; return 1; }
		touch "$root/ready"
	fi
}

inside() { # root, command: in the system, with its own /proc for as long as the command runs
	unshare --mount sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" sh -c "$2"' sh "$1" "$2"
}

try() { # suite, architecture, machine
	local root=.systems/$1-$2 wheel
	wheel=$(ls build/out/*_"$3".whl)
	rm -rf "$root/try"
	mkdir "$root/try"
	cp "$wheel" "$golden" build/try_install.py build/try_library.py "$root/try"
	wheel=/try/$(basename "$wheel")
	local label
	label="$1 $3, $(chroot "$root" sh -c 'ldd --version' | sed -n '1s/.* //p'), $(chroot "$root" python3 -V)"
	if chroot "$root" python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
		inside "$root" "cd /try && python3 -m venv v && v/bin/pip install -q --no-index $wheel && v/bin/python try_install.py 'glibc $label'"
	else
		echo -n "glibc $label: "
		inside "$root" "python3 /try/try_library.py $wheel /try/$(basename "$golden")"
	fi
}

failed=0
for one in "$@"; do
	suite=${one%:*} architecture=${one#*:}
	case $architecture in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac
	{ system "$suite" "$architecture" && try "$suite" "$architecture" "$machine"; } || { echo "failed: $one"; failed=1; }
done
exit $failed
