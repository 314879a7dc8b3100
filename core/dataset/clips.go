package dataset

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Clips are the results of a scan in little memory: 56 bytes a clip beside its path, and more only
// for odd ones.
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

type odd struct {
	claimed float64 // seconds; 0 without a claim that differs
	err     string
}

// Kind is what most clips of a dataset have in common; the fields are those of profile.Clip.
type Kind struct {
	SampleRate int    `json:"sample_rate"`
	Channels   int    `json:"channels"`
	Bits       int    `json:"bits"`
	Codec      string `json:"codec"`
	Method     string `json:"method"`
}

// kinds numbers the kinds that occur. The zero value is ready; number 0 is the zero kind, of bad
// clips.
type kinds struct {
	mu     sync.Mutex
	number map[Kind]uint32
	list   []Kind
}

func (k *kinds) of(wanted Kind) uint32 {
	if wanted == (Kind{}) {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.number[wanted]
	if !ok {
		if k.number == nil {
			k.number, k.list = map[Kind]uint32{}, []Kind{{}}
		}
		n = uint32(len(k.list))
		k.number[wanted], k.list = n, append(k.list, wanted)
	}
	return n
}

func (k *kinds) at(number uint32) Kind {
	if number == 0 {
		return Kind{}
	}
	return k.list[number]
}

// Len counts the clips, bad ones too.
func (c *Clips) Len() int { return len(c.rows) }

// At returns one clip, written out.
func (c *Clips) At(i int) profile.Clip {
	r := &c.rows[i]
	k := c.kinds.at(r.kind)
	clip := profile.Clip{
		Path: fault.Printable(r.path), SampleRate: k.SampleRate, Channels: k.Channels, Bits: k.Bits,
		Codec: k.Codec, Method: k.Method,
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

// Page is some clips in columns: a caller can keep millions of clips so without an object for each.
type Page struct {
	Count int `json:"count"`
	// all of the scan so far, not only of the page; the first is of bad clips
	KindList []Kind    `json:"kind_list"`
	Claims   []Claim   `json:"claims"` // of the few clips whose header claims something else
	Errors   []Problem `json:"errors"` // of the bad clips
	// of a part: the checksum of all that its source lists, on which the parts of a scan agree;
	// else 0
	Listing uint32 `json:"listing"`
	rows    []row
}

// Claim is the claimed duration of one clip of the page, by its index there.
type Claim struct {
	Index   int     `json:"index"`
	Seconds float64 `json:"seconds"`
}

// Problem is the error of one clip of the page, by its index there.
type Problem struct {
	Index int    `json:"index"`
	Error string `json:"error"`
}

// Page returns clips from an offset on, in source order, at most limit; none past the end.
func (c *Clips) Page(offset, limit int) Page {
	from := min(offset, len(c.rows))
	rows := c.rows[from : from+min(limit, len(c.rows)-from)]
	p := Page{Count: len(rows), KindList: []Kind{{}}, Claims: []Claim{}, Errors: []Problem{},
		Listing: c.listing, rows: rows}
	if len(c.kinds.list) > 0 {
		p.KindList = slices.Clone(c.kinds.list)
	}
	for i := range rows {
		if claimed := rows[i].claimed(); claimed > 0 {
			p.Claims = append(p.Claims, Claim{i, claimed})
		}
		if err := rows[i].err(); err != "" {
			p.Errors = append(p.Errors, Problem{i, err})
		}
	}
	return p
}

const rowBytes = 8 + 8 + 8 + 4 + 4

// Size is how many bytes the columns take.
func (p *Page) Size() int {
	n := rowBytes * len(p.rows)
	for i := range p.rows {
		n += len(fault.Printable(p.rows[i].path))
	}
	return n
}

// Write writes the columns: little-endian numbers, one of each clip: seconds (float64, NaN of a bad
// clip), bytes (int64), digests (uint64, for finding copies; 0 where there is none), kinds (uint32,
// index in KindList), lengths of paths (uint32, in characters); then the paths in UTF-8, one behind
// the other.
func (p *Page) Write(to []byte) {
	n, le := len(p.rows), binary.LittleEndian
	c := columnsOf(to, n)
	for i := range p.rows {
		r := &p.rows[i]
		path := fault.Printable(r.path)
		seconds := r.duration
		if seconds == 0 { // a bad clip
			seconds = math.NaN()
		}
		le.PutUint64(c.seconds[8*i:], math.Float64bits(seconds))
		le.PutUint64(c.sizes[8*i:], uint64(r.size))
		le.PutUint64(c.digests[8*i:], r.digest)
		le.PutUint32(c.kinds[4*i:], r.kind)
		le.PutUint32(c.lengths[4*i:], uint32(utf8.RuneCountInString(path)))
		c.paths = c.paths[copy(c.paths, path):]
	}
}

type pageColumns struct{ seconds, sizes, digests, kinds, lengths, paths []byte }

func columnsOf(b []byte, n int) pageColumns {
	return pageColumns{b[:8*n], b[8*n : 16*n], b[16*n : 24*n], b[24*n : 28*n], b[28*n : rowBytes*n],
		b[rowBytes*n:]}
}

// read appends the rows of a page that was written by another scan: b has its columns.
func (c *Clips) read(p *Page, b []byte) error {
	if p.Count < 0 || p.Count > len(b)/rowBytes {
		return badPage("%d clips in %d bytes", p.Count, len(b))
	}
	if err := c.sameListing(p); err != nil {
		return err
	}
	numbers := make([]uint32, len(p.KindList))
	for i, k := range p.KindList {
		numbers[i] = c.kinds.of(k)
	}
	rows := make([]row, p.Count)
	if err := fill(rows, columnsOf(b, p.Count), numbers); err != nil {
		return err
	}
	if err := p.mark(rows); err != nil {
		return err
	}
	c.rows = append(c.rows, rows...)
	return nil
}

// fill sets what the columns say. A bad clip has no duration yet, and no error.
func fill(rows []row, c pageColumns, numbers []uint32) error {
	le, paths := binary.LittleEndian, string(c.paths) // one copy, of which each path is a part
	for i := range rows {
		seconds, number := math.Float64frombits(le.Uint64(c.seconds[8*i:])),
			le.Uint32(c.kinds[4*i:])
		if int(number) >= len(numbers) || seconds <= 0 || seconds > media.MaxTicks {
			return badPage("clip %d of kind %d lasts %v s", i, number, seconds)
		}
		n, ok := characters(paths, int(le.Uint32(c.lengths[4*i:])))
		if !ok {
			return badPage("the path of clip %d is truncated", i)
		}
		rows[i] = row{path: paths[:n], size: int64(le.Uint64(c.sizes[8*i:])),
			digest: le.Uint64(c.digests[8*i:]), kind: numbers[number]}
		if !math.IsNaN(seconds) {
			rows[i].duration = seconds
		}
		paths = paths[n:]
	}
	if paths != "" {
		return badPage("%d bytes after the last path", len(paths))
	}
	return nil
}

// characters counts the bytes of the first n characters.
func characters(text string, n int) (size int, ok bool) {
	for ; n > 0 && size < len(text); n-- {
		_, width := utf8.DecodeRuneInString(text[size:])
		size += width
	}
	return size, n == 0
}

// mark sets what few clips have. Those without a duration, and no others, have errors.
func (p *Page) mark(rows []row) error {
	for _, claim := range p.Claims {
		if claim.Index < 0 || claim.Index >= len(rows) || !(claim.Seconds > 0) ||
			rows[claim.Index].duration == 0 {
			return badPage("a claim of %v s for clip %d", claim.Seconds, claim.Index)
		}
		rows[claim.Index].odd = &odd{claimed: claim.Seconds}
	}
	for _, problem := range p.Errors {
		if problem.Index < 0 || problem.Index >= len(rows) || problem.Error == "" ||
			rows[problem.Index].duration > 0 {
			return badPage("an error %q for clip %d", problem.Error, problem.Index)
		}
		rows[problem.Index].bad(problem.Error)
	}
	for i := range rows {
		if rows[i].duration == 0 && rows[i].odd == nil {
			return badPage("clip %d has neither a duration nor an error", i)
		}
	}
	return nil
}

func badPage(format string, args ...any) error {
	return fault.New(fault.Corrupt, "pass a page of scan.clips as it came, with its bytes",
		"page of a scan: "+format, args...)
}
