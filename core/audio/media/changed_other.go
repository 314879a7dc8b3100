//go:build !linux && !darwin

package media

import "os"

// changed is the modification time in place of the inode's change time, which is not at hand.
func changed(info os.FileInfo) int64 { return info.ModTime().UnixNano() }
