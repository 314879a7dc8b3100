//go:build unix && !linux

package audio

import "syscall"

// folders is for systems whose library cannot open files in an open folder.
type folders struct{ limit int }

func (*folders) open(path string, flags int) (int, error) { return syscall.Open(path, flags, 0) }

func (*folders) close() {}

func share(int) int { return 0 }
