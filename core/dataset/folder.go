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

// namesAtOnce is how many files are listed between two looks at the context: well under a
// millisecond's worth.
const namesAtOnce = 1024

// walker collects the wanted files of folders.
type walker struct {
	ctx     context.Context
	wanted  func(name string) bool
	entries []entry
	seen    map[string]bool // folders that were entered, by their paths without links
}

// listFolder finds the audio files under root. A subfolder that cannot be read is a stray; root
// itself must be readable.
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
	w := &walker{ctx: ctx, wanted: audio.HasExtension, seen: make(map[string]bool)}
	if err := w.enter(filepath.Clean(root)); err != nil {
		return nil, err
	}
	if err := unlisted(w.entries); err != nil {
		return nil, err
	}
	if len(w.entries) == 1 && w.entries[0].stray && w.entries[0].clip.Path == filepath.Clean(root) {
		return nil, fault.New(fault.NotFound, "check its permissions", "folder %s: %s",
			fault.Printable(root), w.entries[0].clip.Error)
	}
	return w.entries, nil
}

// listPaths takes files as they are and searches folders.
func listPaths(ctx context.Context, paths []string) ([]entry, error) {
	w := &walker{ctx: ctx, wanted: audio.HasExtension, entries: make([]entry, 0, len(paths))}
	for i, path := range paths {
		if i%namesAtOnce == 0 {
			if err := w.alive(); err != nil {
				return nil, err
			}
		}
		if path != "" && !audio.HasExtension(path) {
			if err := w.alive(); err != nil {
				return nil, err
			}
			if st, err := os.Stat(path); err == nil && st.IsDir() {
				w.seen = make(map[string]bool) // a folder that is listed twice counts twice
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

// enter adds the files of one folder and its subfolders. The error is cancellation.
func (w *walker) enter(folder string) error {
	items, err := w.read(folder)
	if err != nil {
		return err
	}
	before := prefixOf(folder)
	w.entries = slices.Grow(w.entries, len(items))
	for i := range items {
		it := &items[i]
		path, isFolder, isFile := before+it.name, it.kind.IsDir(), it.kind.IsRegular()
		if i%namesAtOnce == 0 || !isFile {
			if err := w.alive(); err != nil {
				return err
			}
		}
		if !isFolder && !isFile { // a link, or a junction to a folder, which Go calls irregular
			st, err := os.Stat(path)
			isFolder = err == nil && st.IsDir()
			if media.Unanswered(err) {
				w.entries = append(w.entries, stray(path, "%v", err))
				continue
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

// prefixOf is what filepath.Join writes before the names of a folder's members.
func prefixOf(folder string) string {
	path := filepath.Join(folder, "x")
	return path[:len(path)-1]
}

// alive returns an error once the context has ended.
func (w *walker) alive() error {
	if w.ctx.Err() != nil {
		return cancelled(w.ctx, "listing files")
	}
	return nil
}

// bare takes the path out of a file error: it stands beside it.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// item is a member of a folder: what may be audio, or lead to it.
type item struct {
	name string
	kind fs.FileMode // its type bits; a regular file is wanted
}

// read lists one folder in the order of names, without what is hidden and what cannot be wanted.
// A folder that was entered before is empty; one that cannot be read leaves a stray.
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
	var items []item
	for err == nil {
		if err := w.alive(); err != nil {
			return nil, err
		}
		var members []fs.DirEntry
		members, err = file.ReadDir(namesAtOnce)
		for _, member := range members {
			name, kind := member.Name(), member.Type()
			if name[0] != '.' && (!kind.IsRegular() || w.wanted(name)) {
				items = append(items, item{name, kind})
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		w.entries = append(w.entries, stray(folder, "folder cannot be read to its end: %v",
			bare(err)))
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.name, b.name) })
	return items, nil
}

// entered reports whether the folder was entered before, under whatever name, and marks it.
func (w *walker) entered(folder string) bool {
	target, err := filepath.EvalSymlinks(folder)
	if err == nil {
		target, err = filepath.Abs(target)
	}
	if err != nil {
		return false // reading it fails, too, and says why
	}
	before := w.seen[target]
	w.seen[target] = true
	return before
}
