//go:build unix

package hardware

import "golang.org/x/sys/unix"

// spaceOf is the size of a file system and what is free of it, in bytes.
func spaceOf(folder string) (total, free uint64, ok bool) {
	var found unix.Statfs_t
	if err := unix.Statfs(folder, &found); err != nil || found.Bsize <= 0 || found.Bfree > found.Blocks {
		return 0, 0, false
	}
	return found.Blocks * uint64(found.Bsize), found.Bfree * uint64(found.Bsize), true
}
