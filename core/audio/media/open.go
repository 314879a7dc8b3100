package media

import (
	"errors"
	"io/fs"
	"syscall"
)

var (
	errFolder  = errors.New("is a folder, not a file")
	errSpecial = errors.New("is a pipe, socket or device, not a regular file")
)

// Open opens path if it is a regular file and reads its head. It does not wait for the writer of a
// pipe.
func (s *File) Open(path string, first int64) (Stat, error) {
	s.reset()
	if fails := Simulated.Load(); fails != nil {
		if err := (*fails)(path); err != nil {
			return UnknownStat, err
		}
	}
	var err error
	if s.fd, err = openFile(path); err != nil {
		return UnknownStat, readable(err)
	}
	st, err := inspect(s.fd)
	if err != nil {
		s.Close()
		return UnknownStat, readable(err)
	}
	s.begin(st.Size, first)
	return st, nil
}

// Look asks what is at path; the error is that it is not a regular file.
func Look(path string) (Stat, error) {
	st, err := look(path)
	if err != nil {
		return UnknownStat, readable(err)
	}
	return st, nil
}

// Close closes the file on disk, if one is open.
func (s *File) Close() {
	if s.fd != noFile {
		closeFile(s.fd) // only read from: nothing can be lost
		s.fd = noFile
	}
}

// readable leaves the path out of an error, where it stands beside it.
func readable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.EINVAL):
		return errors.New("no such file")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("permission denied")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
