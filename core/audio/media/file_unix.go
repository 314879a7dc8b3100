//go:build unix

package media

import (
	"errors"
	"syscall"
)

// handle is an open file, by the system's number.
type handle = int

const noFile handle = -1

// Plain system calls instead of os.File: for the small reads of a scan, the poller and the
// finalizer cost more than the read.

// Open opens path if it is a regular file and reads its head. Opening a pipe would wake its writer,
// and opening a device can have effects (rewind a tape, start a watchdog), so Open must first know
// what path is: from st, filled by a recent Look; from the folder, which lists it as a regular
// file; or, where first is not 0, from an audio extension, which pipes and devices never have by
// accident. Links with such names do occur in archives, and are not followed unchecked. Otherwise
// Open calls stat first.
func (s *File) Open(path string, listed bool, first int64, st *Stat) error {
	s.reset()
	if err := simulated(path); err != nil {
		return err
	}
	isRegular := listed || st.Size >= 0
	err := syscall.ELOOP
	if isRegular || first > 0 {
		err = s.openFile(path, !isRegular)
	}
	if err == syscall.ELOOP { // a link, or nothing is known
		var errno error
		if *st, errno = Look(path); errno != nil {
			return errno
		}
		err = s.openFile(path, false)
	}
	if err != 0 {
		return readable(err)
	}
	if st.Size < 0 {
		if err := s.inspect(st); err != nil {
			s.Close()
			return err
		}
	}
	s.begin(st.Size, first)
	if errors.Is(s.Err, syscall.EISDIR) {
		s.Close()
		return errFolder
	}
	return nil
}

var errFolder = errors.New("is a folder, not a file")

// openFile opens path; ELOOP means that it is a link, and links were not wanted.
func (s *File) openFile(path string, noLink bool) syscall.Errno {
	flags := syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_NONBLOCK | syscall.O_NOCTTY
	if noLink {
		flags |= syscall.O_NOFOLLOW
	}
	for {
		fd, err := syscall.Open(path, flags, 0)
		if err == nil {
			s.fd = fd
			return 0
		}
		var number syscall.Errno
		if !errors.As(err, &number) {
			return syscall.EIO
		}
		if number != syscall.EINTR {
			return number
		}
	}
}

// Look asks what is at path; the error is that it is not a regular file.
func Look(path string) (Stat, error) {
	var raw syscall.Stat_t
	if err := retry(func() error { return syscall.Stat(path, &raw) }); err != nil {
		return UnknownStat, readable(err)
	}
	if err := regular(&raw); err != nil {
		return UnknownStat, err
	}
	return statOf(&raw), nil
}

// inspect asks what was opened.
func (s *File) inspect(st *Stat) error {
	var raw syscall.Stat_t
	if err := retry(func() error { return syscall.Fstat(s.fd, &raw) }); err != nil {
		return readable(err)
	}
	if err := regular(&raw); err != nil {
		return err
	}
	*st = statOf(&raw)
	return nil
}

// Close closes the file on disk, if one is open.
func (s *File) Close() {
	if s.fd != noFile {
		_ = syscall.Close(s.fd) // only read from: nothing can be lost
		s.fd = noFile
	}
}

// pread fills p from off up to the end of the file and returns the number of bytes. It keeps an
// error in s.err.
func (s *File) pread(p []byte, off int64) int {
	got := 0
	for got < len(p) {
		n, err := syscall.Pread(s.fd, p[got:], s.start+off+int64(got))
		switch {
		case err == nil && n > 0:
			got += n
		case err == syscall.EINTR:
		case err != nil:
			if s.Err == nil {
				s.Err = err
			}
			return got
		default:
			return got
		}
	}
	return got
}

func regular(st *syscall.Stat_t) error {
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return nil
	case syscall.S_IFDIR:
		return errFolder
	default:
		return errors.New("is a pipe, socket or device, not a regular file")
	}
}

func readable(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.EINVAL):
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
