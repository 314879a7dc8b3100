//go:build unix

package dataset

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file for this process alone; busy says to ask again.
func tryLock(f *os.File) (busy bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return true, nil
	}
	return false, err
}
