package dataset

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/audio"
)

// Page is some clips in columns: a caller can keep millions of clips so without an object for each.
type Page struct {
	Count    int       `json:"count"`
	KindList []Kind    `json:"kind_list"` // all of the scan so far, not only of the page; the first is of bad clips
	Claims   []Claim   `json:"claims"`    // of the few clips whose header claims something else
	Errors   []Problem `json:"errors"`    // of the bad clips
	// Columns are little-endian numbers, one of each clip: seconds (float64, NaN of a bad clip), bytes (int64), kinds (uint32,
	// index in KindList), lengths of paths (uint32, in characters); then the paths in UTF-8, one behind the other.
	Columns []byte `json:"-"`
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
	p := Page{Count: len(rows), KindList: []Kind{{}}, Claims: []Claim{}, Errors: []Problem{}}
	for number := 1; number < len(c.kinds.list); number++ {
		k := c.kinds.list[number]
		p.KindList = append(p.KindList, Kind{k.sampleRate, k.channels, k.bits, k.codec, k.method})
	}
	bytes := 0
	for i := range rows {
		bytes += len(rows[i].path)
	}
	n, le := len(rows), binary.LittleEndian
	numbers, paths := make([]byte, 24*n, 24*n+bytes), make([]byte, 0, bytes)
	sizes, kinds, lengths := numbers[8*n:], numbers[16*n:], numbers[20*n:]
	for i := range rows {
		r := &rows[i]
		path := audio.Printable(r.path)
		le.PutUint64(numbers[8*i:], math.Float64bits(r.durationOrNaN()))
		le.PutUint64(sizes[8*i:], uint64(r.size))
		le.PutUint32(kinds[4*i:], r.kind)
		le.PutUint32(lengths[4*i:], uint32(utf8.RuneCountInString(path)))
		paths = append(paths, path...)
		if claimed := r.claimed(); claimed > 0 {
			p.Claims = append(p.Claims, Claim{i, claimed})
		}
		if err := r.err(); err != "" {
			p.Errors = append(p.Errors, Problem{i, err})
		}
	}
	p.Columns = append(numbers, paths...)
	return p
}

func (r *row) durationOrNaN() float64 {
	if r.duration > 0 {
		return r.duration
	}
	return math.NaN()
}
