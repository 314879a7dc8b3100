//go:build unix

package hardware

import "golang.org/x/sys/unix"

// spaceOf is the size of a file system and what is free of it, in bytes.
func spaceOf(folder string) (total, free uint64, ok bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil || stat.Bsize <= 0 ||
		stat.Bfree > stat.Blocks {
		return 0, 0, false
	}
	return stat.Blocks * uint64(stat.Bsize), stat.Bfree * uint64(stat.Bsize), true
}
