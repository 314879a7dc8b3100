package dataset

import (
	"cmp"
	"context"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/asrconfig/asrconfig-go/core/audio"
)

// item is what a folder says of one of its members.
type item struct {
	path string
	rank uint64 // the first bytes of the name in which the folder's names differ: most comparisons need no more
	kind uint8  // fileMember and so on; unknownMember where the file system does not tell
}

// members collects those of one folder that are folders, or may be, or are named like audio.
type members struct {
	prefix string // of their paths
	arena  *arena
	items  []item
}

// take keeps a member unless it is hidden, or can be no audio. It is called for millions of files: what is not audio costs
// no memory.
func (m *members) take(name []byte, kind uint8) {
	if len(name) == 0 || name[0] == '.' {
		return
	}
	folderly := kind == folderMember || kind == linkMember || kind == unknownMember
	if folderly || audio.HasExtension(unsafe.String(&name[0], len(name))) {
		m.items = append(m.items, item{path: m.arena.join(m.prefix, name), kind: kind})
	}
}

// sortAtOnce is how many names are sorted between two looks at the context: some milliseconds' worth.
const sortAtOnce = 1 << 14

// sorted gives the items by name. It sorts in pieces and merges them, so that a folder of a million files can be left at
// any time.
func (m *members) sorted(ctx context.Context) ([]item, error) {
	items := m.items
	m.rank()
	for piece := range slices.Chunk(items, sortAtOnce) {
		if ctx.Err() != nil {
			return nil, cancelled(ctx, "sorting names")
		}
		slices.SortFunc(piece, byName)
	}
	if len(items) <= sortAtOnce {
		return items, nil
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

func byName(a, b item) int {
	if a.rank != b.rank {
		return cmp.Compare(a.rank, b.rank)
	}
	return strings.Compare(a.path, b.path)
}

// rank fills in the ranks of the items: eight bytes behind what all the names begin with.
func (m *members) rank() {
	if len(m.items) == 0 {
		return
	}
	first := m.items[0].path
	shared := len(first)
	for i := range m.items {
		path := m.items[i].path
		n := min(shared, len(path))
		for path[:n] != first[:n] {
			n--
		}
		shared = n
	}
	for i := range m.items {
		var eight [8]byte
		copy(eight[:], m.items[i].path[shared:])
		m.items[i].rank = binary.BigEndian.Uint64(eight[:])
	}
}

// arena makes many short strings with few allocations.
type arena struct{ free []byte }

func (a *arena) join(prefix string, name []byte) string {
	n := len(prefix) + len(name)
	if cap(a.free) < n {
		a.free = make([]byte, 0, max(1<<16, n))
	}
	text := append(append(a.free[:0], prefix...), name...)
	a.free = a.free[n:n:cap(a.free)]
	return unsafe.String(&text[0], n)
}

// prefixOf is what stands before a name in the path of a folder's member.
func prefixOf(folder string) string {
	switch {
	case folder == ".":
		return ""
	case os.IsPathSeparator(folder[len(folder)-1]):
		return folder
	default:
		return folder + string(os.PathSeparator)
	}
}
