//go:build unix

package media

import "syscall"

// handle is an open file by the system's number. For the small reads of a scan the poller and the
// finalizer of an os.File cost a quarter of the time of a file.
type handle = int

const noFile handle = -1

func openFile(path string) (handle, error) {
	const flags = syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_NONBLOCK | syscall.O_NOCTTY
	fd := noFile
	err := uninterrupted(func() (err error) {
		fd, err = syscall.Open(path, flags, 0)
		return err
	})
	return fd, err
}

func inspect(fd handle) (Stat, error) {
	var raw syscall.Stat_t
	return regular(&raw, uninterrupted(func() error { return syscall.Fstat(fd, &raw) }))
}

func look(path string) (Stat, error) {
	var raw syscall.Stat_t
	return regular(&raw, uninterrupted(func() error { return syscall.Stat(path, &raw) }))
}

// uninterrupted calls again what a signal has interrupted.
func uninterrupted(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

func regular(raw *syscall.Stat_t, err error) (Stat, error) {
	if err != nil {
		return UnknownStat, err
	}
	switch raw.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return statOf(raw), nil
	case syscall.S_IFDIR:
		return UnknownStat, errFolder
	}
	return UnknownStat, errSpecial
}

func closeFile(fd handle) { _ = syscall.Close(fd) }

// pread fills p from off up to the end of the file and returns the number of bytes. It keeps an
// error in s.Err.
func (s *File) pread(p []byte, off int64) int {
	read := 0
	for read < len(p) {
		n, err := syscall.Pread(s.fd, p[read:], s.start+off+int64(read))
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil && s.Err == nil:
			s.Err = readable(err)
		}
		if n <= 0 {
			break
		}
		read += n
	}
	return read
}
