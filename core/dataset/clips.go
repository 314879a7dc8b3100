package dataset

import (
	"sync"
	"sync/atomic"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Clips are the results of a scan in little memory: 56 bytes a clip beside its path, and more only for odd ones.
type Clips struct {
	rows    []row
	kinds   kinds
	listing uint32                      // of a part's source (see listing); 0 of a whole scan
	lost    atomic.Pointer[fault.Error] // of storage that did not answer; nil while it does
}

// row is one clip. A usable one has a duration; a bad one has an error and none.
type row struct {
	path     string  // as the system knows it, which need not be UTF-8
	duration float64 // seconds; 0 when the clip is bad
	size     int64
	digest   uint64 // see media.Stat; 0 when there is none
	odd      *odd   // nil for most
	kind     uint32 // index in kinds
}

// odd is what few clips have.
type odd struct {
	claimed float64 // seconds; 0 without a claim that differs
	err     string
}

// kind is what most clips of a dataset have in common.
type kind struct {
	sampleRate, channels, bits int
	codec, method              string
}

// kinds numbers the kinds that occur. The zero value is ready; number 0 is the zero kind, of bad clips.
type kinds struct {
	mu     sync.Mutex
	number map[kind]uint32
	list   []kind
}

func (k *kinds) of(wanted kind) uint32 {
	if wanted == (kind{}) {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n, known := k.number[wanted]
	if !known {
		if k.number == nil {
			k.number, k.list = map[kind]uint32{}, []kind{{}}
		}
		n = uint32(len(k.list))
		k.number[wanted], k.list = n, append(k.list, wanted)
	}
	return n
}

func (k *kinds) at(number uint32) kind {
	if number == 0 {
		return kind{}
	}
	return k.list[number]
}

// Len counts the clips, bad ones too.
func (c *Clips) Len() int { return len(c.rows) }

// At gives one clip, written out.
func (c *Clips) At(i int) profile.Clip {
	r := &c.rows[i]
	k := c.kinds.at(r.kind)
	clip := profile.Clip{
		Path: fault.Printable(r.path), SampleRate: k.sampleRate, Channels: k.channels, Bits: k.bits, Codec: k.codec, Method: k.method,
		SizeBytes: r.size, Error: r.err(),
	}
	if r.duration > 0 {
		clip.DurationS = &r.duration
	}
	if r.odd != nil && r.odd.claimed > 0 {
		clip.ClaimedS = &r.odd.claimed
	}
	return clip
}

func (r *row) err() string {
	if r.odd == nil {
		return ""
	}
	return r.odd.err
}

func (r *row) claimed() float64 {
	if r.odd == nil {
		return 0
	}
	return r.odd.claimed
}

// bad makes the row that of a clip that cannot be used.
func (r *row) bad(reason string) {
	r.duration, r.kind, r.odd = 0, 0, &odd{err: reason}
}
