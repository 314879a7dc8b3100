package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// Cache says where durations are kept between scans. A file is found again by its path, its size and the times of its last
// changes to the nanosecond, so one that changed is measured again. Nothing in the cache is needed for an answer: a folder
// that cannot be written, or a table that broke, only costs the time to read the files.
type Cache struct {
	Folder string `json:"folder"` // "" keeps nothing
	// Mark identifies the library: caches of another one, which may measure otherwise, are ignored.
	Mark string `json:"mark"`
}

const (
	tableName = "durations.table"
	// racyAge is how old a file's last change must be when a scan starts: a younger one may change again without a change
	// of its time, which some file systems keep in steps of two seconds.
	racyAge = 2 * time.Second
	// staleAge is when a file that is found again is marked as useful again.
	staleAge   = 7 * 24 * time.Hour
	flushSlots = 1 << 14 // kept by a worker before they are written
	flushAge   = 5 * time.Second
)

// cache is one being used by a scan.
type cache struct {
	Cache
	base  string // the working folder, for relative paths
	start time.Time
	table *table // as it was when the scan began; nil without one
	write sync.Mutex
}

// openCache prepares for a scan of about so many files; nil when nothing is kept.
func openCache(c Cache, files int) *cache {
	if c.Folder == "" || files == 0 {
		return nil
	}
	base, err := os.Getwd()
	if err != nil || os.MkdirAll(c.Folder, 0o700) != nil {
		return nil
	}
	opened := &cache{Cache: c, base: base, start: time.Now()}
	if t, err := openTable(filepath.Join(c.Folder, tableName), os.O_RDONLY); err == nil {
		if int64(files) >= int64(1)<<t.bits {
			t.load()
		}
		opened.table = t
	}
	return opened
}

// cacheUser is one worker's part in it.
type cacheUser struct {
	*cache
	page    [pageSize]byte
	text    []byte            // scratch: what a key is made of
	codecs  map[string]string // one string for each name
	pending []byte            // slots to write
	flushed time.Time
}

func (c *cache) user() *cacheUser {
	if c == nil {
		return nil
	}
	return &cacheUser{cache: c, codecs: map[string]string{}, flushed: time.Now()}
}

// key makes the number by which a path is found: the first half of a SHA-256, in which two of ten million paths agree with a
// chance of one in 400 000, and even then their sizes and times differ. 0 means nothing.
func (u *cacheUser) key(path string) uint64 {
	u.text = append(append(u.text[:0], u.Mark...), 0)
	if !filepath.IsAbs(path) {
		u.text = append(append(u.text, u.base...), '/')
	}
	u.text = append(u.text, path...)
	sum := sha256.Sum256(u.text)
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// find looks a file up and says whether it is as it was. st is what the system says of it now, its size negative when that
// was not asked: only of files that the cache knows.
func (u *cacheUser) find(path string, key uint64, into *remembered) (st media.Stat, found bool, err error) {
	st.Size = -1
	if u.table == nil {
		return st, false, nil
	}
	slot := u.table.find(key, &u.page)
	if slot == nil || !into.get(slot, u.codecs) {
		return st, false, nil
	}
	if st, err = audio.Look(path); err != nil {
		return st, false, err
	}
	was := into.stat
	if st.Size != was.Size || st.ModNS != was.ModNS || st.ChangeNS != was.ChangeNS {
		return st, false, nil
	}
	if u.start.Sub(time.Unix(int64(into.seen), 0)) > staleAge {
		u.keep(into)
	}
	return was, true, nil
}

// keep notes what was found out about a file, unless that may change unseen.
func (u *cacheUser) keep(r *remembered) {
	if u.start.Sub(time.Unix(0, max(r.stat.ModNS, r.stat.ChangeNS))) < racyAge {
		return
	}
	r.seen = uint32(u.start.Unix())
	var slot [slotSize]byte
	if r.put(slot[:]) {
		u.pending = append(u.pending, slot[:]...)
	}
}

// flush writes what was noted, when that is much or old or always is set.
func (u *cacheUser) flush(ctx context.Context, always bool) {
	if len(u.pending) == 0 || !always && len(u.pending) < flushSlots*slotSize && time.Since(u.flushed) < flushAge {
		return
	}
	u.cache.write.Lock()
	defer u.cache.write.Unlock()
	_ = store(ctx, u.Folder, u.pending) // without it, the files are only read again
	u.pending, u.flushed = u.pending[:0], time.Now()
}
