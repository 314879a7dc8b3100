package dataset

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// How much is done between two looks at the context: some milliseconds' worth.
const (
	namesAtOnce = 1024    // directory entries read
	sortAtOnce  = 1 << 14 // names sorted
)

// walker collects the audio files of folders.
type walker struct {
	ctx     context.Context
	entries []entry
	seen    map[identity]bool // folders that were entered
}

// identity tells folders apart whatever their names.
type identity struct{ device, inode uint64 }

// listFolder finds the audio files under root. A subfolder that cannot be read is a stray; root itself must be readable.
func listFolder(ctx context.Context, root string) ([]entry, error) {
	st, err := os.Stat(root)
	switch {
	case err != nil:
		return nil, fault.Wrap(bare(err), fault.NotFound, "check the path", "folder %s", audio.Printable(root))
	case !st.IsDir():
		return nil, fault.New(fault.InvalidArgument, "pass a single file as a list of paths, or as a manifest", "%s is not a folder", audio.Printable(root))
	}
	w := walker{ctx: ctx, seen: make(map[identity]bool)}
	if err := w.enter(root); err != nil {
		return nil, err
	}
	if len(w.entries) == 1 && w.entries[0].stray && w.entries[0].clip.Path == audio.Printable(root) {
		return nil, fault.New(fault.NotFound, "check its permissions", "folder %s: %s", audio.Printable(root), w.entries[0].clip.Error)
	}
	return w.entries, nil
}

// listPaths takes files as they are and searches folders.
func listPaths(ctx context.Context, paths []string) ([]entry, error) {
	w := walker{ctx: ctx}
	for _, path := range paths {
		if err := w.alive(); err != nil {
			return nil, err
		}
		if path != "" && !audio.HasExtension(path) {
			if st, err := os.Stat(path); err == nil && st.IsDir() {
				w.seen = make(map[identity]bool) // a folder that is listed twice counts twice
				if err := w.enter(path); err != nil {
					return nil, err
				}
				continue
			}
		}
		w.entries = append(w.entries, entry{path: path})
	}
	return w.entries, nil
}

// enter adds the files of one folder and its subfolders. The error is cancellation.
func (w *walker) enter(folder string) error {
	items, err := w.read(folder)
	if err != nil {
		return err
	}
	for _, item := range items {
		if err := w.alive(); err != nil {
			return err
		}
		path := filepath.Join(folder, item.name)
		isFolder := item.kind.IsDir()
		if item.kind&fs.ModeSymlink != 0 {
			st, err := os.Stat(path)
			isFolder = err == nil && st.IsDir()
		}
		if isFolder {
			if err := w.enter(path); err != nil {
				return err
			}
		} else if audio.HasExtension(item.name) {
			w.entries = append(w.entries, entry{path: path})
		}
	}
	return nil
}

// item is what a folder says of one of its members.
type item struct {
	name string
	kind fs.FileMode
}

// read lists one folder in the order of names, without what is hidden and what can be no audio. A folder that was entered
// before is empty; one that cannot be read leaves a stray.
func (w *walker) read(folder string) ([]item, error) {
	d, err := os.Open(folder)
	if err != nil {
		w.entries = append(w.entries, stray(folder, "folder cannot be read: %v", bare(err)))
		return nil, nil
	}
	defer d.Close()
	if w.entered(d) {
		return nil, nil
	}
	var items []item
	for {
		if err := w.alive(); err != nil {
			return nil, err
		}
		found, err := d.ReadDir(namesAtOnce)
		for _, f := range found {
			linkOrFolder := f.IsDir() || f.Type()&fs.ModeSymlink != 0
			if !strings.HasPrefix(f.Name(), ".") && (linkOrFolder || audio.HasExtension(f.Name())) {
				items = append(items, item{f.Name(), f.Type()})
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				w.entries = append(w.entries, stray(folder, "folder cannot be read to its end: %v", bare(err)))
			}
			return sorted(w.ctx, items)
		}
	}
}

// entered says whether the folder was entered before, and marks it.
func (w *walker) entered(d *os.File) bool {
	st, err := d.Stat()
	if err != nil {
		return false // reading it will fail and say why
	}
	raw, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	id := identity{uint64(raw.Dev), raw.Ino}
	before := w.seen[id]
	w.seen[id] = true
	return before
}

// alive gives an error once the context has ended.
func (w *walker) alive() error {
	if w.ctx.Err() != nil {
		return cancelled(w.ctx, "listing files")
	}
	return nil
}

// sorted sorts by name in pieces and merges them, so that a folder of a million files can be left at any time.
func sorted(ctx context.Context, items []item) ([]item, error) {
	byName := func(a, b item) int { return cmp.Compare(a.name, b.name) }
	for piece := range slices.Chunk(items, sortAtOnce) {
		if ctx.Err() != nil {
			return nil, cancelled(ctx, "sorting names")
		}
		slices.SortFunc(piece, byName)
	}
	spare := make([]item, 0, len(items))
	for width := sortAtOnce; width < len(items); width *= 2 {
		spare = spare[:0]
		for from := 0; from < len(items); from += 2 * width {
			middle, end := min(from+width, len(items)), min(from+2*width, len(items))
			a, b := items[from:middle], items[middle:end]
			for len(a)+len(b) > 0 {
				if len(spare)%sortAtOnce == 0 && ctx.Err() != nil {
					return nil, cancelled(ctx, "sorting names")
				}
				if len(b) == 0 || len(a) > 0 && byName(a[0], b[0]) <= 0 {
					spare, a = append(spare, a[0]), a[1:]
				} else {
					spare, b = append(spare, b[0]), b[1:]
				}
			}
		}
		items, spare = spare, items
	}
	return items, nil
}

// bare takes the path out of a file error: it stands beside it.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
