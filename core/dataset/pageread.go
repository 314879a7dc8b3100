package dataset

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

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
		numbers[i] = c.kinds.of(kind{k.SampleRate, k.Channels, k.Bits, k.Codec, k.Method})
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
		seconds, number := math.Float64frombits(le.Uint64(c.seconds[8*i:])), le.Uint32(c.kinds[4*i:])
		if int(number) >= len(numbers) || seconds <= 0 || seconds > media.MaxTicks {
			return badPage("clip %d of kind %d lasts %v s", i, number, seconds)
		}
		n, ok := characters(paths, int(le.Uint32(c.lengths[4*i:])))
		if !ok {
			return badPage("the path of clip %d is truncated", i)
		}
		rows[i] = row{path: paths[:n], size: int64(le.Uint64(c.sizes[8*i:])), digest: le.Uint64(c.digests[8*i:]), kind: numbers[number]}
		if !math.IsNaN(seconds) {
			rows[i].duration = seconds
		}
		paths = paths[n:]
	}
	if paths != "" {
		return badPage("%d bytes behind the last path", len(paths))
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
		if claim.Index < 0 || claim.Index >= len(rows) || !(claim.Seconds > 0) || rows[claim.Index].duration == 0 {
			return badPage("a claim of %v s for clip %d", claim.Seconds, claim.Index)
		}
		rows[claim.Index].odd = &odd{claimed: claim.Seconds}
	}
	for _, problem := range p.Errors {
		if problem.Index < 0 || problem.Index >= len(rows) || problem.Error == "" || rows[problem.Index].duration > 0 {
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
	return fault.New(fault.Corrupt, "pass a page of scan.clips as it came, with its bytes", "page of a scan: "+format, args...)
}
