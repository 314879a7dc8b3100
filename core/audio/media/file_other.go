//go:build !unix

package media

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// handle is an open file.
type handle = *os.File

var noFile handle

// Open opens path if it is a regular file and reads its head. What it is must be known before:
// opening a device can act.
func (s *File) Open(path string, _ bool, first int64, st *Stat) error {
	s.reset()
	if err := simulated(path); err != nil {
		return err
	}
	if st.Size < 0 {
		var err error
		if *st, err = Look(path); err != nil {
			return err
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return readable(err)
	}
	s.fd = file
	s.begin(st.Size, first)
	return nil
}

// Look asks what is at path; the error is that it is not a regular file.
func Look(path string) (Stat, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return UnknownStat, readable(err)
	case info.IsDir():
		return UnknownStat, errors.New("is a folder, not a file")
	case !info.Mode().IsRegular():
		return UnknownStat, errors.New("is a pipe, socket or device, not a regular file")
	}
	// The change time of the inode is not available here; the modification time replaces it.
	changed := info.ModTime().UnixNano()
	return Stat{Size: info.Size(), ModNS: changed, ChangeNS: changed}, nil
}

// Close closes the file on disk, if one is open.
func (s *File) Close() {
	if s.fd != noFile {
		_ = s.fd.Close() // only read from: nothing can be lost
		s.fd = noFile
	}
}

// pread fills p from off up to the end of the file and returns the number of bytes. It keeps an
// error in s.Err.
func (s *File) pread(p []byte, off int64) int {
	got, err := s.fd.ReadAt(p, s.start+off)
	if err != nil && err != io.EOF && s.Err == nil {
		s.Err = err
	}
	return got
}

func readable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
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
