package isobmff

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// table is a list of entries of the same width in a box of the sample table.
type table struct {
	off   int64
	n     int64
	width int // bytes of an entry; 0: 4 bits
}

// table finds the entries of a full box: head bytes that end with their number, then as many as the
// box really holds.
func (w boxReader) table(b box, head, width int) table {
	_, _, h := w.full(b, head)
	if len(h) < head {
		return table{}
	}
	n := int64(be.Uint32(h[head-4:]))
	return table{b.body + 4 + int64(head), min(n, (b.size()-4-int64(head))/int64(width)), width}
}

// compactSizes is the table of a stz2 box: sizes of 4, 8 or 16 bits.
func (w boxReader) compactSizes(b box) table {
	_, _, h := w.full(b, 8)
	if len(h) < 8 {
		return table{}
	}
	bits := int64(h[3])
	if bits != 4 && bits != 8 && bits != 16 {
		return table{}
	}
	return table{b.body + 12, min(int64(be.Uint32(h[4:])), (b.size()-12)*8/bits), int(bits / 8)}
}

// value returns entry i, or the first 4 bytes of wider entries that are no 64-bit numbers; 0 behind
// the end of the file.
func (t table) value(w boxReader, i int64) int64 {
	if t.width == 0 {
		if b := w.At(t.off+i/2, 1); len(b) == 1 {
			return int64(b[0] >> (4 - 4*(i&1)) & 15)
		}
		return 0
	}
	b := w.At(t.off+i*int64(t.width), t.width)
	switch {
	case len(b) < t.width:
		return 0
	case t.width == 1:
		return int64(b[0])
	case t.width == 2:
		return int64(be.Uint16(b))
	case t.width == 8:
		return int64(min(be.Uint64(b), 1<<62))
	}
	return int64(be.Uint32(b))
}

// ticks adds up the durations of the first n samples. A sample counts with no more than its codec
// can play: a longer one stands before a gap, which no decoder fills.
func (t *track) ticks(w boxReader, n int64) (sum int64, err error) {
	for i := int64(0); i < t.stts.n && n > 0; i++ {
		e := w.At(t.stts.off+8*i, 8)
		if len(e) < 8 || !w.Spend(1) {
			break
		}
		count, delta := min(n, int64(be.Uint32(e))), int64(be.Uint32(e[4:]))
		if t.longest > 0 {
			delta = min(delta, t.longest)
		}
		if delta > 0 && count > (media.MaxTicks-sum)/delta {
			return 0, media.Corrupt("claims samples that play for more than 2^53 ticks")
		}
		sum += count * delta
		n -= count
	}
	return sum, nil
}

// run is one entry of the sample-to-chunk table: chunks from first on, counted from 0, hold samples
// each.
type run struct{ first, last, samples int64 }

func (t *track) run(w boxReader, i int64) (run, bool) {
	e := w.At(t.stsc.off+12*i, 24)
	if len(e) < 12 || !w.Spend(2) {
		return run{}, false
	}
	r := run{int64(be.Uint32(e)) - 1, t.chunks.n, int64(be.Uint32(e[4:]))}
	if i+1 < t.stsc.n && len(e) == 24 {
		r.last = min(r.last, int64(be.Uint32(e[12:]))-1)
	}
	return r, r.first >= 0 && r.last >= r.first
}

// covered counts the samples that the chunks hold.
func (t *track) covered(w boxReader) (n int64, err error) {
	for i := range t.stsc.n {
		r, ok := t.run(w, i)
		if !ok {
			return 0, media.Corrupt("has a broken sample table (stsc box)")
		}
		if r.samples > 0 && r.last-r.first > (media.MaxTicks-n)/r.samples {
			return 0, media.Corrupt("claims more than 2^53 samples")
		}
		n += (r.last - r.first) * r.samples
	}
	return n, nil
}
