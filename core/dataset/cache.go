package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/asrconfig/asrconfig-go/core/audio"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Cache says where durations are kept between scans. A file is found again by its path, its size
// and the times of its last changes to the nanosecond, so one that changed is measured again.
// Nothing in the cache is needed for an answer: a folder that cannot be written, or a file of it
// that broke, only costs the time to read the clips.
type Cache struct {
	Folder string `json:"folder"` // "" keeps nothing
	// Mark identifies the library: caches of another one, which may measure otherwise, are ignored.
	Mark string `json:"mark"`
}

const (
	cacheName = "durations"
	// racyAge is how old a file's last change must be when a scan starts: a younger one may change
	// again without a change of its time, which some file systems keep in steps of two seconds.
	racyAge    = 2 * time.Second
	flushSlots = 1 << 14 // kept by a worker before they are written
	flushAge   = 5 * time.Second
	mostBroken = 1 << 16 // bytes of no slot in a cache that is read on
)

// mostSlots are two million files, 168 MB, of which only the newer half is kept when they are more.
// It is changed in tests.
var mostSlots = 1 << 21

// cache is one being used by a scan: slots, one behind the other, to whose end any number of scans
// add at the same time.
type cache struct {
	Cache
	base   string // the working folder, for relative paths
	start  time.Time
	slots  []byte         // as they were when the scan began
	places map[uint64]int // where in slots the newest of a key is
	write  sync.Mutex
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
	opened.slots, _ = os.ReadFile(opened.path())
	if !opened.index() {
		opened.renew()
	}
	return opened
}

func (c *cache) path() string { return filepath.Join(c.Folder, cacheName) }

// index finds the slots; it says no to a cache that is broken or too long. A write that was cut
// short leaves a part of a slot.
func (c *cache) index() bool {
	c.places = make(map[uint64]int, len(c.slots)/slotSize)
	broken := 0
	for at := 0; at+slotSize <= len(c.slots); {
		if slot := c.slots[at : at+slotSize]; intact(slot) {
			c.places[keyOf(slot)] = at
			at += slotSize
			continue
		}
		at++
		if broken++; broken > mostBroken {
			return false
		}
	}
	return len(c.slots) <= mostSlots*slotSize
}

// renew replaces the file by the newer half of it, in one step.
func (c *cache) renew() {
	var newer []byte
	for _, at := range c.places {
		if at >= len(c.slots)-mostSlots/2*slotSize {
			newer = append(newer, c.slots[at:at+slotSize]...)
		}
	}
	if os.WriteFile(c.path()+".new", newer, 0o600) == nil {
		_ = os.Rename(c.path()+".new", c.path())
	}
}

// cacheUser is one worker's part in it.
type cacheUser struct {
	*cache
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

// key makes the number by which a path is found: the first half of a SHA-256, in which two of ten
// million paths agree with a chance of one in 400 000, and even then their sizes and times differ.
// 0 means nothing.
func (u *cacheUser) key(path string) uint64 {
	u.text = append(append(u.text[:0], u.Mark...), 0)
	if !filepath.IsAbs(path) {
		u.text = append(append(u.text, u.base...), '/')
	}
	u.text = append(u.text, path...)
	sum := sha256.Sum256(u.text)
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// find looks a file up and says whether it is as it was. st is what the system says of it now, its
// size negative when that was not asked: only of files that the cache knows.
func (u *cacheUser) find(path string, key uint64,
	into *remembered) (st media.Stat, unchanged bool, err error) {
	st.Size = -1
	at, isKnown := u.places[key]
	if !isKnown || !into.get(u.slots[at:at+slotSize], u.codecs) {
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

// keep notes what was found out about a file, unless that may change unseen.
func (u *cacheUser) keep(r *remembered) {
	if u.start.Sub(time.Unix(0, max(r.stat.ModNS, r.stat.ChangeNS))) < racyAge {
		return
	}
	var slot [slotSize]byte
	if r.put(slot[:]) {
		u.pending = append(u.pending, slot[:]...)
	}
}

// flush writes what was noted, when that is much or old or always is set.
func (u *cacheUser) flush(always bool) {
	if len(u.pending) == 0 || !always && len(u.pending) < flushSlots*slotSize &&
		time.Since(u.flushed) < flushAge {
		return
	}
	u.cache.write.Lock()
	defer u.cache.write.Unlock()
	file, err := os.OpenFile(u.path(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil { // without it, the files are only read again
		_, _ = file.Write(u.pending)
		_ = file.Close()
	}
	u.pending, u.flushed = u.pending[:0], time.Now()
}

// remembered is what the cache knows of one file: how it was when it was measured, and what came
// out.
type remembered struct {
	key      uint64 // of its path, and of the library that measured it
	stat     media.Stat
	duration float64
	claimed  float64 // 0 without a claim that differs
	kind     kind
}

// A slot is one remembered file in the cache: 84 bytes, little-endian, with a checksum, so that one
// that was half written is told from a good one.
const (
	slotSize   = 84
	codecAt    = 64
	checkAt    = 80
	codecLimit = checkAt - codecAt
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put writes r into a slot. It says no when r cannot be told in one.
func (r *remembered) put(slot []byte) bool {
	k := &r.kind
	method := slices.Index(profile.Methods, k.method)
	if method < 0 || len(k.codec) > codecLimit || k.channels > math.MaxUint16 ||
		k.bits > math.MaxUint8 || k.sampleRate > math.MaxInt32 {
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
	le.PutUint32(slot[56:], uint32(k.sampleRate))
	le.PutUint16(slot[60:], uint16(k.channels))
	slot[62], slot[63] = byte(k.bits), byte(method)
	clear(slot[codecAt:checkAt])
	copy(slot[codecAt:checkAt], k.codec)
	le.PutUint32(slot[checkAt:], crc32.Checksum(slot[:checkAt], castagnoli))
	return true
}

// intact reports whether the slot holds what was once written there.
func intact(slot []byte) bool {
	return keyOf(slot) != 0 && binary.LittleEndian.Uint32(
		slot[checkAt:]) == crc32.Checksum(slot[:checkAt], castagnoli)
}

func keyOf(slot []byte) uint64 { return binary.LittleEndian.Uint64(slot) }

// get reads a whole slot, with one string for each codec. It says no when no clip can be like that.
func (r *remembered) get(slot []byte, codecs map[string]string) bool {
	le := binary.LittleEndian
	method := int(slot[63])
	if method >= len(profile.Methods) {
		return false
	}
	*r = remembered{
		key: keyOf(slot), duration: math.Float64frombits(le.Uint64(slot[32:])),
		claimed: math.Float64frombits(le.Uint64(slot[40:])),
		stat: media.Stat{Size: int64(le.Uint64(slot[8:])), ModNS: int64(le.Uint64(slot[16:])),
			ChangeNS: int64(le.Uint64(slot[24:])), Digest: le.Uint64(slot[48:])},
		kind: kind{sampleRate: int(le.Uint32(slot[56:])), channels: int(le.Uint16(slot[60:])),
			bits: int(slot[62]), method: profile.Methods[method]},
	}
	name := bytes.TrimRight(slot[codecAt:checkAt], "\x00")
	codec, ok := codecs[string(name)]
	if !ok {
		codec = string(name)
		codecs[codec] = codec
	}
	r.kind.codec = codec
	return r.duration > 0 && r.duration <= math.MaxFloat64 && r.claimed >= 0 &&
		r.claimed <= math.MaxFloat64
}
