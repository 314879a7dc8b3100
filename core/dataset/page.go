package dataset

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Page is some clips in columns: a caller can keep millions of clips so without an object for each.
type Page struct {
	Count    int       `json:"count"`
	KindList []Kind    `json:"kind_list"` // all of the scan so far, not only of the page; the first is of bad clips
	Claims   []Claim   `json:"claims"`    // of the few clips whose header claims something else
	Errors   []Problem `json:"errors"`    // of the bad clips
	Listing  uint32    `json:"listing"`   // of a part: the checksum of all that its source lists, on which the parts of a scan agree; else 0
	rows     []row
}

// Kind is what clips of a kind have in common; the fields are those of profile.Clip.
type Kind struct {
	SampleRate int    `json:"sample_rate"`
	Channels   int    `json:"channels"`
	Bits       int    `json:"bits"`
	Codec      string `json:"codec"`
	Method     string `json:"method"`
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

// Page gives clips from an offset on, in source order, at most limit; none past the end.
func (c *Clips) Page(offset, limit int) Page {
	from := min(offset, len(c.rows))
	rows := c.rows[from : from+min(limit, len(c.rows)-from)]
	p := Page{Count: len(rows), KindList: []Kind{{}}, Claims: []Claim{}, Errors: []Problem{}, Listing: c.listing, rows: rows}
	for number := 1; number < len(c.kinds.list); number++ {
		k := c.kinds.list[number]
		p.KindList = append(p.KindList, Kind{k.sampleRate, k.channels, k.bits, k.codec, k.method})
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

// rowBytes are those of a row's numbers in the columns.
const rowBytes = 8 + 8 + 8 + 4 + 4

// Size is how many bytes the columns take.
func (p *Page) Size() int {
	n := rowBytes * len(p.rows)
	for i := range p.rows {
		n += len(fault.Printable(p.rows[i].path))
	}
	return n
}

// Write writes the columns: little-endian numbers, one of each clip: seconds (float64, NaN of a bad clip), bytes (int64),
// digests (uint64, for finding copies; 0 where there is none), kinds (uint32, index in KindList), lengths of paths (uint32, in characters); then the paths in UTF-8, one behind the other.
func (p *Page) Write(to []byte) {
	n, le := len(p.rows), binary.LittleEndian
	c := columnsOf(to, n)
	for i := range p.rows {
		r := &p.rows[i]
		path := fault.Printable(r.path)
		le.PutUint64(c.seconds[8*i:], math.Float64bits(r.durationOrNaN()))
		le.PutUint64(c.sizes[8*i:], uint64(r.size))
		le.PutUint64(c.digests[8*i:], r.digest)
		le.PutUint32(c.kinds[4*i:], r.kind)
		le.PutUint32(c.lengths[4*i:], uint32(utf8.RuneCountInString(path)))
		c.paths = c.paths[copy(c.paths, path):]
	}
}

// pageColumns are those that Write writes.
type pageColumns struct{ seconds, sizes, digests, kinds, lengths, paths []byte }

func columnsOf(b []byte, n int) pageColumns {
	return pageColumns{b[:8*n], b[8*n : 16*n], b[16*n : 24*n], b[24*n : 28*n], b[28*n : rowBytes*n], b[rowBytes*n:]}
}

func (r *row) durationOrNaN() float64 {
	if r.duration > 0 {
		return r.duration
	}
	return math.NaN()
}
