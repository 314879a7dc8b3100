//go:build unix

package dataset

import (
	"encoding/binary"
	"slices"
	"syscall"
	"unsafe"
)

// identity tells folders apart whatever their names.
type identity struct{ device, inode uint64 }

// What a folder says of its members.
const (
	fileMember    = syscall.DT_REG
	folderMember  = syscall.DT_DIR
	linkMember    = syscall.DT_LNK
	unknownMember = syscall.DT_UNKNOWN
)

// read lists one folder in the order of names, without what is hidden and what can be no audio. A folder that was entered
// before is empty; one that cannot be read leaves a stray.
func (w *walker) read(folder string) ([]item, error) {
	fd, err := syscall.Open(folder, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		w.entries = append(w.entries, stray(folder, "folder cannot be read: %v", err))
		return nil, nil
	}
	defer syscall.Close(fd)
	if w.entered(fd) {
		return nil, nil
	}
	names := members{prefix: prefixOf(folder), arena: &w.arena}
	for {
		if err := w.alive(); err != nil {
			return nil, err
		}
		n, err := syscall.ReadDirent(fd, w.buffer[:])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			w.entries = append(w.entries, stray(folder, "folder cannot be read to its end: %v", err))
			return names.sorted(w.ctx)
		case n <= 0:
			return names.sorted(w.ctx)
		default:
			names.add(w.buffer[:n])
		}
	}
}

// entered says whether the open folder was entered before, and marks it.
func (w *walker) entered(fd int) bool {
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil {
		return false // reading it will fail and say why
	}
	id := identity{uint64(st.Dev), st.Ino}
	before := w.seen[id]
	w.seen[id] = true
	return before
}

// Where the fields of a directory entry are, in the system's own layout.
const (
	inodeAt  = unsafe.Offsetof(syscall.Dirent{}.Ino)
	lengthAt = unsafe.Offsetof(syscall.Dirent{}.Reclen)
	kindAt   = unsafe.Offsetof(syscall.Dirent{}.Type)
	nameAt   = unsafe.Offsetof(syscall.Dirent{}.Name)
)

// add takes the entries that the system wrote (getdents64).
func (m *members) add(raw []byte) {
	for len(raw) > int(nameAt) {
		length := int(binary.NativeEndian.Uint16(raw[lengthAt:]))
		if length <= int(nameAt) || length > len(raw) {
			return // no system does that
		}
		one := raw[:length]
		raw = raw[length:]
		name := one[nameAt:]
		if end := slices.Index(name, 0); end >= 0 {
			name = name[:end]
		}
		if binary.NativeEndian.Uint64(one[inodeAt:]) != 0 {
			m.take(name, one[kindAt])
		}
	}
}
