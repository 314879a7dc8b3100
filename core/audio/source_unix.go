//go:build unix

package audio

import (
	"errors"
	"syscall"
)

// Plain system calls instead of os.File: for the small reads of a scan, the poller and the finalizer cost more than the read.

// open opens path if it is a regular file and reads its head. It never opens a pipe or a device, which could block or act.
func (s *source) open(path string) error {
	s.fd, s.size, s.head, s.whole, s.err = noFile, 0, nil, false, nil
	var st syscall.Stat_t
	if err := retry(func() error { return syscall.Stat(path, &st) }); err != nil {
		return readable(err)
	}
	if err := regular(&st); err != nil {
		return err
	}
	flags := syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_NONBLOCK | syscall.O_NOCTTY
	err := retry(func() (err error) { s.fd, err = syscall.Open(path, flags, 0); return err })
	if err != nil {
		s.fd = noFile
		return readable(err)
	}
	if err := s.load(&st); err != nil {
		s.close()
		return err
	}
	return nil
}

// load looks again at what was really opened, and reads the head.
func (s *source) load(st *syscall.Stat_t) error {
	if err := retry(func() error { return syscall.Fstat(s.fd, st) }); err != nil {
		return readable(err)
	}
	if err := regular(st); err != nil {
		return err
	}
	s.size = max(0, st.Size-s.start)
	if s.limit > 0 {
		s.size = min(s.size, s.limit)
	}
	s.head = s.heap[:s.pread(s.heap[:min(s.size, headLen)], 0)]
	s.whole = s.size <= headLen
	return nil
}

func (s *source) close() {
	if s.fd != noFile {
		_ = syscall.Close(s.fd) // only read from: nothing can be lost
		s.fd = noFile
	}
}

// pread fills p from off as far as the file goes and says how far that was. An error is kept in s.err.
func (s *source) pread(p []byte, off int64) int {
	got := 0
	for got < len(p) {
		n, err := syscall.Pread(s.fd, p[got:], s.start+off+int64(got))
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			if s.err == nil {
				s.err = err
			}
			return got
		case n <= 0:
			return got
		}
		got += n
	}
	return got
}

func regular(st *syscall.Stat_t) error {
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return nil
	case syscall.S_IFDIR:
		return errors.New("is a folder, not a file")
	default:
		return errors.New("is a pipe, socket or device, not a regular file")
	}
}

func readable(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL):
		return errors.New("no such file")
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return errors.New("permission denied")
	default:
		return err
	}
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
