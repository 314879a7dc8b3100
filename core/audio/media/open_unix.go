//go:build unix

package media

import (
	"errors"

	"golang.org/x/sys/unix"
)

// handle is an open file by the system's number. For the small reads of a scan the poller and the
// finalizer of an os.File cost a quarter of the time of a file.
type handle = int

const noFile handle = -1

func openFile(path string) (handle, error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd := noFile
	err := uninterrupted(func() (err error) {
		fd, err = unix.Open(path, flags, 0)
		return err
	})
	return fd, err
}

func inspect(fd handle) (Stat, error) {
	var raw unix.Stat_t
	return regular(&raw, uninterrupted(func() error { return unix.Fstat(fd, &raw) }))
}

func look(path string) (Stat, error) {
	var raw unix.Stat_t
	return regular(&raw, uninterrupted(func() error { return unix.Stat(path, &raw) }))
}

// uninterrupted calls again what a signal has interrupted.
func uninterrupted(call func() error) error {
	err := call()
	for errors.Is(err, unix.EINTR) {
		err = call()
	}
	return err
}

func regular(raw *unix.Stat_t, err error) (Stat, error) {
	if err != nil {
		return UnknownStat, err
	}
	switch raw.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Stat{Size: raw.Size, ModNS: raw.Mtim.Nano(), ChangeNS: raw.Ctim.Nano()}, nil
	case unix.S_IFDIR:
		return UnknownStat, errFolder
	}
	return UnknownStat, errSpecial
}

func closeFile(fd handle) { _ = unix.Close(fd) }

// pread fills p from off up to the end of the file and returns the number of bytes. It keeps an
// error in s.Err.
func (s *File) pread(p []byte, off int64) int {
	read := 0
	for read < len(p) {
		n, err := unix.Pread(s.fd, p[read:], s.start+off+int64(read))
		switch {
		case err == unix.EINTR:
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
