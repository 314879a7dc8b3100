package dataset

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// namesAtOnce is how many names are listed between two checks of the context. They take well under
// a millisecond.
const namesAtOnce = 1024

// listingFiles is what a walk was doing when its context ends.
const listingFiles = "listing files"

// walker lists the wanted files of folders and their subfolders.
type walker struct {
	ctx     context.Context
	wanted  func(name string) bool
	entries []entry
	visited map[string]bool // folders that were entered, by their absolute paths without links
}

// listFolder lists the audio files of root and its subfolders. A subfolder that cannot be read
// becomes a stray; root itself must be readable.
func listFolder(ctx context.Context, root string) ([]entry, error) {
	st, err := os.Stat(root)
	switch {
	case err != nil:
		return nil, fault.Wrap(bare(err), fault.NotFound, "check the path", "folder %s",
			fault.Printable(root))
	case !st.IsDir():
		return nil, fault.New(fault.InvalidArgument,
			"pass a single file as a list of paths, or as a manifest", "%s is not a folder",
			fault.Printable(root))
	}
	root = filepath.Clean(root)
	w := &walker{ctx: ctx, wanted: audio.HasExtension, visited: make(map[string]bool)}
	if err := w.enter(root); err != nil {
		return nil, err
	}
	if len(w.entries) == 1 && w.entries[0].stray && w.entries[0].clip.Path == root {
		return nil, fault.New(fault.NotFound, "check its permissions", "folder %s: %s",
			fault.Printable(root), w.entries[0].clip.Error)
	}
	return w.entries, nil
}

// listPaths returns files in the order of paths, with the audio files of a folder in its place.
func listPaths(ctx context.Context, paths []string) ([]entry, error) {
	w := &walker{ctx: ctx, wanted: audio.HasExtension, entries: make([]entry, 0, len(paths))}
	for i, path := range paths {
		isAudio := audio.HasExtension(path)
		if i%namesAtOnce == 0 || !isAudio {
			if err := cancelled(ctx, listingFiles); err != nil {
				return nil, err
			}
		}
		if !isAudio {
			if st, err := os.Stat(path); err == nil && st.IsDir() {
				w.visited = make(map[string]bool) // a folder that is passed twice counts twice
				if err := w.enter(filepath.Clean(path)); err != nil {
					return nil, err
				}
				continue
			}
		}
		w.entries = append(w.entries, entry{path: path, archive: isShard(path)})
	}
	return w.entries, nil
}

// enter adds the files of a folder and its subfolders. It returns an error only when the context
// ends, or the storage does not answer.
func (w *walker) enter(folder string) error {
	members, err := w.read(folder)
	if err != nil {
		return err
	}
	w.entries = slices.Grow(w.entries, len(members))
	for i, member := range members {
		path, kind := filepath.Join(folder, member.name), member.kind
		isFolder, isFile := kind.IsDir(), kind.IsRegular()
		if i%namesAtOnce == 0 || !isFile {
			if err := cancelled(w.ctx, listingFiles); err != nil {
				return err
			}
		}
		if !isFolder && !isFile { // a symbolic link, or a junction of Windows
			st, err := os.Stat(path)
			isFolder = err == nil && st.IsDir()
			if media.Unanswered(err) {
				return err
			}
		}
		if isFolder {
			if err := w.enter(path); err != nil {
				return err
			}
		} else if isFile || w.wanted(path) {
			w.entries = append(w.entries, entry{path: path})
		}
	}
	return nil
}

type member struct {
	name string
	kind fs.FileMode // its type bits
}

// read returns the members of a folder that are wanted or may lead to wanted files, by name. Hidden
// ones are skipped. A folder that was visited before is empty; one that cannot be read adds a
// stray.
func (w *walker) read(folder string) (members []member, err error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, w.unread(folder, "folder cannot be read: %v", err)
	}
	defer file.Close()
	if w.visit(folder) {
		return nil, nil
	}
	for err == nil {
		if err := cancelled(w.ctx, listingFiles); err != nil {
			return nil, err
		}
		var listed []fs.DirEntry
		listed, err = file.ReadDir(namesAtOnce)
		for _, item := range listed {
			name, kind := item.Name(), item.Type()
			if name[0] != '.' && (!kind.IsRegular() || w.wanted(name)) {
				members = append(members, member{name, kind})
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		if err = w.unread(folder, "folder cannot be read to its end: %v", err); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return members, nil
}

// unread adds a stray for a folder, or returns the error of storage that does not answer.
func (w *walker) unread(folder, format string, err error) error {
	if media.Unanswered(err) {
		return err
	}
	w.entries = append(w.entries, stray(folder, format, bare(err)))
	return nil
}

// visit marks a folder as visited and reports whether it was before, perhaps by another path.
func (w *walker) visit(folder string) (again bool) {
	target, err := filepath.EvalSymlinks(folder)
	if err == nil {
		target, err = filepath.Abs(target)
	}
	if err != nil {
		return false // reading it fails, too, and reports the reason
	}
	again = w.visited[target]
	w.visited[target] = true
	return again
}

// bare returns the cause of a file error without its path, which the message names already.
func bare(err error) error {
	var withPath *fs.PathError
	if errors.As(err, &withPath) {
		return withPath.Err
	}
	return err
}
