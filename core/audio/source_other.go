//go:build !unix

package audio

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// handle is an open file.
type handle = *os.File

var noFile handle

// open opens path if it is a regular file and reads its head. What it is must be known before: opening a device can act.
func (s *source) open(path string, _ bool, first int64, st *Stat) error {
	s.reset()
	if st.Size < 0 {
		var err error
		if *st, err = look(path); err != nil {
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

// look asks what is at path; the error is that it is no regular file.
func look(path string) (Stat, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return unknownStat, readable(err)
	case info.IsDir():
		return unknownStat, errors.New("is a folder, not a file")
	case !info.Mode().IsRegular():
		return unknownStat, errors.New("is a pipe, socket or device, not a regular file")
	}
	// The time of a change of anything but the content is not told here; that of the content stands in for it.
	changed := info.ModTime().UnixNano()
	return Stat{Size: info.Size(), ModNS: changed, ChangeNS: changed}, nil
}

func (s *source) close() {
	if s.fd != noFile {
		_ = s.fd.Close() // only read from: nothing can be lost
		s.fd = noFile
	}
}

// pread fills p from off as far as the file goes and says how far that was. An error is kept in s.err.
func (s *source) pread(p []byte, off int64) int {
	got, err := s.fd.ReadAt(p, s.start+off)
	if err != nil && err != io.EOF && s.err == nil {
		s.err = err
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

// folders is for systems where no folder is kept open.
type folders struct{ limit int }

func (*folders) close() {}

func share(int) int { return 0 }
