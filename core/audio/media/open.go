package media

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens path if it is a regular file and reads its head. It does not wait for the writer of a
// pipe.
func (s *File) Open(path string, first int64) (Stat, error) {
	s.reset()
	if err := simulated(path); err != nil {
		return UnknownStat, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return UnknownStat, readable(err)
	}
	s.fd = file
	st, err := statOf(file.Stat())
	if err != nil {
		s.Close()
		return st, err
	}
	s.begin(st.Size, first)
	return st, nil
}

// Look asks what is at path; the error is that it is not a regular file.
func Look(path string) (Stat, error) { return statOf(os.Stat(path)) }

func statOf(info os.FileInfo, err error) (Stat, error) {
	switch {
	case err != nil:
		return UnknownStat, readable(err)
	case info.IsDir():
		return UnknownStat, errors.New("is a folder, not a file")
	case !info.Mode().IsRegular():
		return UnknownStat, errors.New("is a pipe, socket or device, not a regular file")
	}
	return Stat{Size: info.Size(), ModNS: info.ModTime().UnixNano(), ChangeNS: changed(info)}, nil
}

// Close closes the file on disk, if one is open.
func (s *File) Close() {
	if s.fd != nil {
		_ = s.fd.Close() // only read from: nothing can be lost
		s.fd = nil
	}
}

// pread fills p from off up to the end of the file and returns the number of bytes. It keeps an
// error in s.Err.
func (s *File) pread(p []byte, off int64) int {
	got, err := s.fd.ReadAt(p, s.start+off)
	if err != nil && err != io.EOF && s.Err == nil {
		s.Err = readable(err)
	}
	return got
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
