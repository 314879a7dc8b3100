//go:build !unix

package media

import (
	"io"
	"os"
)

type handle = *os.File

var noFile handle

func openFile(path string) (handle, error) { return os.Open(path) }

func inspect(file handle) (Stat, error) { return statOf(file.Stat()) }

func look(path string) (Stat, error) { return statOf(os.Stat(path)) }

// statOf has the modification time in place of the inode's change time, which is not at hand.
func statOf(info os.FileInfo, err error) (Stat, error) {
	switch {
	case err != nil:
		return UnknownStat, err
	case info.IsDir():
		return UnknownStat, errFolder
	case !info.Mode().IsRegular():
		return UnknownStat, errSpecial
	}
	changed := info.ModTime().UnixNano()
	return Stat{Size: info.Size(), ModNS: changed, ChangeNS: changed}, nil
}

func closeFile(file handle) { _ = file.Close() }

// pread fills p from off up to the end of the file and returns the number of bytes. It keeps an
// error in s.Err.
func (s *File) pread(p []byte, off int64) int {
	read, err := s.fd.ReadAt(p, s.start+off)
	if err != nil && err != io.EOF && s.Err == nil {
		s.Err = readable(err)
	}
	return read
}
