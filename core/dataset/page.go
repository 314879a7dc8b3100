package dataset

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/audio"
)

// Page is some clips in columns, little-endian numbers in bytes: a caller can keep millions of clips so without an object
// for each, and JSON carries it quickly.
type Page struct {
	Count       int       `json:"count"`
	Paths       string    `json:"paths"`        // one behind the other
	PathLengths []byte    `json:"path_lengths"` // uint32 each: characters, not bytes
	DurationsS  []byte    `json:"durations_s"`  // float64 each; NaN of a bad clip
	SizesBytes  []byte    `json:"sizes_bytes"`  // int64 each
	Kinds       []byte    `json:"kinds"`        // uint32 each: index in KindList
	KindList    []Kind    `json:"kind_list"`    // all of the scan so far, not only of the page; the first is of bad clips
	Claims      []Claim   `json:"claims"`       // of the few clips whose header claims something else
	Errors      []Problem `json:"errors"`       // of the bad clips
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
	var paths strings.Builder
	le := binary.LittleEndian
	for i := range rows {
		r := &rows[i]
		path := audio.Printable(r.path)
		paths.WriteString(path)
		p.PathLengths = le.AppendUint32(p.PathLengths, uint32(utf8.RuneCountInString(path)))
		p.DurationsS = le.AppendUint64(p.DurationsS, math.Float64bits(r.durationOrNaN()))
		p.SizesBytes = le.AppendUint64(p.SizesBytes, uint64(r.size))
		p.Kinds = le.AppendUint32(p.Kinds, r.kind)
		if claimed := r.claimed(); claimed > 0 {
			p.Claims = append(p.Claims, Claim{i, claimed})
		}
		if err := r.err(); err != "" {
			p.Errors = append(p.Errors, Problem{i, err})
		}
	}
	p.Paths = paths.String()
	return p
}

func (r *row) durationOrNaN() float64 {
	if r.duration > 0 {
		return r.duration
	}
	return math.NaN()
}
