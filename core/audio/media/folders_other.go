//go:build unix && !linux

package media

import "syscall"

// Folders is for systems whose library cannot open files in an open folder.
type Folders struct{ limit int }

func (*Folders) open(path string, flags int) (int, error) { return syscall.Open(path, flags, 0) }

// NewFolders keeps none open.
func NewFolders(limit int) Folders { return Folders{limit: limit} }

func (*Folders) Close() {}

// Share is how many folders each of some readers may keep open.
func Share(int) int { return 0 }
