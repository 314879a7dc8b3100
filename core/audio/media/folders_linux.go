package media

import (
	"strings"
	"syscall"
)

// Folders keeps those that files come from open: the system need not look up their names from the
// root for each file, which is an eighth of the work on a small one.
type Folders struct {
	limit int // how many are kept; 0: none
	// descriptors by name: 0 before a folder's second file, noFile when it cannot be opened
	fds map[string]int
}

// NewFolders keeps so many folders open at most; 0: none.
func NewFolders(limit int) Folders { return Folders{limit: limit} }

// open opens a file; f may be nil.
func (f *Folders) open(path string, flags int) (int, error) {
	cut := strings.LastIndexByte(path, '/')
	if f == nil || f.limit == 0 || cut <= 0 || cut == len(path)-1 {
		return syscall.Open(path, flags, 0)
	}
	dir := f.fd(path[:cut])
	if dir <= 0 {
		return syscall.Open(path, flags, 0)
	}
	fd, err := syscall.Openat(dir, path[cut+1:], flags, 0)
	if err == syscall.EMFILE || err == syscall.ENFILE || err == syscall.ESTALE {
		f.Close()
		return syscall.Open(path, flags, 0)
	}
	return fd, err
}

// fd returns the descriptor of an open folder by its name, 0 or less when there is none. One is
// opened for its second file only: a list in random order may go through thousands.
func (f *Folders) fd(name string) int {
	fd, ok := f.fds[name]
	switch {
	case !ok:
		if len(f.fds) >= f.limit {
			f.Close()
		}
		if f.fds == nil {
			f.fds = make(map[string]int)
		}
		f.fds[name] = 0
	case fd == 0:
		var err error
		fd, err = syscall.Open(name,
			syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		if err != nil || fd <= 0 {
			fd = noFile
		}
		f.fds[name] = fd
	}
	return fd
}

// Close closes all folders. Others can be kept open afterwards.
func (f *Folders) Close() {
	for _, fd := range f.fds {
		if fd > 0 {
			_ = syscall.Close(fd)
		}
	}
	clear(f.fds)
}

// mostFolders bounds what is kept open, however many files this process may open.
const mostFolders = 256

// Share is how many folders each of some readers may keep open: a quarter of the files that the
// process may open, for all.
func Share(readers int) int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur/4/uint64(max(1, readers)), mostFolders))
}
