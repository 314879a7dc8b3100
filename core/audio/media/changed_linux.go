package media

import (
	"os"
	"syscall"
)

// changed is the change time of the inode.
func changed(info os.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Ctim.Nano() }
