//go:build !unix

package dataset

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// identity tells folders apart whatever their names: the path without links.
type identity string

// What a folder says of its members.
const (
	unknownMember = uint8(iota)
	fileMember
	folderMember
	linkMember
)

// read lists one folder in the order of names, without what is hidden and what can be no audio. A folder that was entered
// before is empty; one that cannot be read leaves a stray.
func (w *walker) read(folder string) ([]item, error) {
	file, err := os.Open(folder)
	if err != nil {
		w.entries = append(w.entries, stray(folder, "folder cannot be read: %v", bare(err)))
		return nil, nil
	}
	defer file.Close()
	if w.entered(folder) {
		return nil, nil
	}
	names := members{prefix: prefixOf(folder), arena: &w.arena}
	for {
		if err := w.alive(); err != nil {
			return nil, err
		}
		found, err := file.ReadDir(namesAtOnce)
		for _, one := range found {
			names.take([]byte(one.Name()), memberKind(one.Type()))
		}
		switch {
		case errors.Is(err, io.EOF):
			return names.sorted(w.ctx)
		case err != nil:
			w.entries = append(w.entries, stray(folder, "folder cannot be read to its end: %v", bare(err)))
			return names.sorted(w.ctx)
		}
	}
}

// entered says whether the folder was entered before, and marks it.
func (w *walker) entered(folder string) bool {
	real, err := filepath.EvalSymlinks(folder)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return false // reading it will fail and say why
	}
	before := w.seen[identity(real)]
	w.seen[identity(real)] = true
	return before
}

func memberKind(mode fs.FileMode) uint8 {
	switch {
	case mode.IsRegular():
		return fileMember
	case mode.IsDir():
		return folderMember
	default: // a link, or a junction to a folder, which Go calls irregular
		return linkMember
	}
}
