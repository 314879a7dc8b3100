package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Cache names the folder in which durations are kept between scans, in one file. An entry is used
// only while the path, the size and the times of the last changes of its audio file are the same to
// the nanosecond; otherwise the audio file is measured again. A folder that cannot be written, or a
// damaged cache, only costs the time to read the clips.
type Cache struct {
	Folder string `json:"folder"` // "" keeps nothing
	// Mark identifies the library: entries of another build, which may measure otherwise, are not
	// used.
	Mark string `json:"mark"`
}

const (
	cacheName = "durations"
	// racyAge is how old a file's last change must be when a scan starts: a younger file may change
	// again with the same modification time, as some file systems keep it in steps of two seconds.
	racyAge    = 2 * time.Second
	flushSlots = 1 << 14         // a worker writes its slots when it has so many,
	flushAge   = 5 * time.Second // or when it last wrote so long ago
)

// A slot is the entry of one audio file in the cache: 84 bytes, little-endian, with a checksum that
// tells a slot that was written in part from an intact one.
const (
	slotSize   = 84
	codecAt    = 64
	checkAt    = 80
	codecLimit = checkAt - codecAt
)

// maxSlots are two million files in 168 MiB; a longer cache is rewritten with its newer half. It is
// changed in tests.
var maxSlots = 1 << 21

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openedCache is the cache during one scan. Its file is a sequence of slots, to which any number of
// scans and processes append at the same time. The scan looks files up in the slots that were there
// when it began.
type openedCache struct {
	Cache
	base    string // the working folder, for relative paths
	start   time.Time
	slots   []byte         // the content of the file when the scan began
	offsets map[uint64]int // of the last slot of each key in slots
	write   sync.Mutex     // one worker appends at a time
}

// openCache reads the cache for a scan; nil when nothing is kept or there are no files to measure.
func openCache(c Cache, files int) *openedCache {
	if c.Folder == "" || files == 0 {
		return nil
	}
	base, err := os.Getwd()
	if err != nil || os.MkdirAll(c.Folder, 0o700) != nil {
		return nil
	}
	opened := &openedCache{Cache: c, base: base, start: time.Now()}
	opened.slots, _ = os.ReadFile(opened.path())
	if !opened.index() {
		opened.rewrite()
	}
	return opened
}

func (c *openedCache) path() string { return filepath.Join(c.Folder, cacheName) }

// index finds the slots. It reports false when the cache should be rewritten: when it is too long,
// or after a slot that is not intact, as a process that was killed, or a full disk, leaves it.
func (c *openedCache) index() bool {
	c.offsets = make(map[uint64]int, len(c.slots)/slotSize)
	for at := 0; at+slotSize <= len(c.slots); at += slotSize { // the last one may be being written
		if !intact(c.slots[at : at+slotSize]) {
			return false
		}
		c.offsets[keyOf(c.slots[at:])] = at
	}
	return len(c.slots) <= maxSlots*slotSize
}

// rewrite replaces the file by the slots that were found, of a long one by its newer half. Every
// scan writes a temporary file of its own, as the processes of a training find the same cache too
// long at the same time. What others appended in between is lost.
func (c *openedCache) rewrite() {
	oldest := len(c.slots) - maxSlots/2*slotSize
	var newer []byte
	for _, at := range slices.Sorted(maps.Values(c.offsets)) {
		if at >= oldest {
			newer = append(newer, c.slots[at:at+slotSize]...)
		}
	}
	file, err := os.CreateTemp(c.Folder, cacheName+".*.part")
	if err != nil {
		return
	}
	_, err = file.Write(newer)
	if errors.Join(err, file.Close()) != nil || os.Rename(file.Name(), c.path()) != nil {
		_ = os.Remove(file.Name())
	}
}

// workerCache is one worker's part of the cache: it looks files up, and collects slots to append.
type workerCache struct {
	*openedCache
	text    []byte // scratch: what a key is computed from
	pending []byte // slots to append
	flushed time.Time
}

// worker returns the part of one worker; nil of a nil cache.
func (c *openedCache) worker() *workerCache {
	if c == nil {
		return nil
	}
	return &workerCache{openedCache: c, flushed: time.Now()}
}

// key returns the number under which a path and the library's mark are kept: the first 8 bytes of a
// SHA-256. Two of ten million paths agree with a chance of one in 400 000; even then, their sizes
// and times tell them apart. It is never 0, the key of a slot of zeros.
func (u *workerCache) key(path string) uint64 {
	u.text = append(append(u.text[:0], u.Mark...), 0)
	if !filepath.IsAbs(path) {
		u.text = append(append(u.text, u.base...), '/')
	}
	u.text = append(u.text, path...)
	sum := sha256.Sum256(u.text)
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// find fills in the entry of the file at path, and reports whether the file is unchanged since it
// was measured. st is the entry's then, with its digest. A file without an entry is not looked up:
// the size in st is negative. The error is that the file cannot be looked up.
func (u *workerCache) find(path string, key uint64,
	into *cachedFile) (st media.Stat, unchanged bool, err error) {
	st.Size = -1
	at, isKnown := u.offsets[key]
	if !isKnown || !into.decode(u.slots[at:at+slotSize]) {
		return st, false, nil
	}
	if st, err = audio.Look(path); err != nil {
		return st, false, err
	}
	was := into.stat
	if st.Size != was.Size || st.ModNS != was.ModNS || st.ChangeNS != was.ChangeNS {
		return st, false, nil
	}
	return was, true, nil
}

// keep collects the entry of a measured file, unless the file may yet change without a change of
// its times.
func (u *workerCache) keep(r *cachedFile) {
	if u.start.Sub(time.Unix(0, max(r.stat.ModNS, r.stat.ChangeNS))) < racyAge {
		return
	}
	var slot [slotSize]byte
	if r.encode(slot[:]) {
		u.pending = append(u.pending, slot[:]...)
	}
}

// flush appends the collected slots to the file when they are many or old, or when always is set.
// An error is ignored: without an entry, a file is only measured again.
func (u *workerCache) flush(always bool) {
	if len(u.pending) == 0 || !always && len(u.pending) < flushSlots*slotSize &&
		time.Since(u.flushed) < flushAge {
		return
	}
	u.write.Lock()
	defer u.write.Unlock()
	file, err := os.OpenFile(u.path(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, _ = file.Write(u.pending)
		_ = file.Close()
	}
	u.pending, u.flushed = u.pending[:0], time.Now()
}

// cachedFile is the entry of one audio file: its times and size when it was measured, and the
// result.
type cachedFile struct {
	key      uint64 // of its path and of the library's mark
	stat     media.Stat
	duration float64
	claimed  float64 // the header's duration, 0 where it does not differ
	kind     Kind
}

// encode writes r into a slot. It reports false when a value of r does not fit into its field.
func (r *cachedFile) encode(slot []byte) bool {
	k := &r.kind
	method := slices.Index(profile.Methods, k.Method)
	if method < 0 || len(k.Codec) > codecLimit || k.Channels > math.MaxUint16 ||
		k.Bits > math.MaxUint8 || k.SampleRate > math.MaxInt32 {
		return false
	}
	le := binary.LittleEndian
	le.PutUint64(slot, r.key)
	le.PutUint64(slot[8:], uint64(r.stat.Size))
	le.PutUint64(slot[16:], uint64(r.stat.ModNS))
	le.PutUint64(slot[24:], uint64(r.stat.ChangeNS))
	le.PutUint64(slot[32:], math.Float64bits(r.duration))
	le.PutUint64(slot[40:], math.Float64bits(r.claimed))
	le.PutUint64(slot[48:], r.stat.Digest)
	le.PutUint32(slot[56:], uint32(k.SampleRate))
	le.PutUint16(slot[60:], uint16(k.Channels))
	slot[62], slot[63] = byte(k.Bits), byte(method)
	clear(slot[codecAt:checkAt])
	copy(slot[codecAt:checkAt], k.Codec)
	le.PutUint32(slot[checkAt:], crc32.Checksum(slot[:checkAt], castagnoli))
	return true
}

// intact reports whether the slot was written in full.
func intact(slot []byte) bool {
	return keyOf(slot) != 0 && binary.LittleEndian.Uint32(
		slot[checkAt:]) == crc32.Checksum(slot[:checkAt], castagnoli)
}

func keyOf(slot []byte) uint64 { return binary.LittleEndian.Uint64(slot) }

// decode reads an intact slot. It reports false when the values cannot be those of a clip.
func (r *cachedFile) decode(slot []byte) bool {
	le := binary.LittleEndian
	method := int(slot[63])
	if method >= len(profile.Methods) {
		return false
	}
	*r = cachedFile{
		key: keyOf(slot), duration: math.Float64frombits(le.Uint64(slot[32:])),
		claimed: math.Float64frombits(le.Uint64(slot[40:])),
		stat: media.Stat{Size: int64(le.Uint64(slot[8:])), ModNS: int64(le.Uint64(slot[16:])),
			ChangeNS: int64(le.Uint64(slot[24:])), Digest: le.Uint64(slot[48:])},
		kind: Kind{SampleRate: int(le.Uint32(slot[56:])), Channels: int(le.Uint16(slot[60:])),
			Bits: int(slot[62]), Method: profile.Methods[method]},
	}
	name := bytes.TrimRight(slot[codecAt:checkAt], "\x00")
	r.kind.Codec = unique.Make(string(name)).Value()
	return r.duration > 0 && r.duration <= math.MaxFloat64 && r.claimed >= 0 &&
		r.claimed <= math.MaxFloat64
}
