package isobmff

import "github.com/asrconfig/asrconfig-go/core/audio/media"

// table is a list of entries of the same width in a box of the sample table.
type table struct {
	off   int64
	n     int64
	width int // bytes of an entry
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

// value returns entry i, or the first 4 bytes of wider entries that are no 64-bit numbers; 0 behind
// the end of the file.
func (t table) value(w boxReader, i int64) int64 {
	b := w.At(t.off+i*int64(t.width), t.width)
	switch {
	case len(b) < t.width:
		return 0
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

// sampleUnit is the least that can be read of samples of constant size: most often one sample.
type sampleUnit struct {
	bytes   int64 // 0: every sample has a size of its own in the table
	samples int64 // > 1 for compressed sound of QuickTime, whose table counts what is decoded
}

// unit is the size in which samples of constant size are read. QuickTime's table has 1 byte where
// the description has the real size.
func (t *track) unit() sampleUnit {
	if t.constant == 1 && t.described.bytes > 0 && t.described.samples > 0 {
		return t.described
	}
	return sampleUnit{t.constant, 1}
}

// heldSamples counts the samples that lie whole in the file, up to the first that does not.
func (t *track) heldSamples(w boxReader) (int64, error) {
	runs, offsets, sizes := boxReader{w.Beside()}, boxReader{w.Beside()}, boxReader{w.Beside()}
	defer w.Forget()
	var n int64
	for i := range t.stsc.n {
		r, ok := t.run(runs, i)
		if !ok {
			break
		}
		for c := r.first; c < r.last && n < t.samples; c++ {
			if !offsets.Spend(1) {
				return 0, w.Spent()
			}
			off, want := t.chunks.value(offsets, c), min(r.samples, t.samples-n)
			got, err := t.inChunk(sizes, off, n, want)
			n += got
			if err != nil || got < want {
				return n, err
			}
		}
	}
	return n, nil
}

// inChunk counts how many of the want samples from number n on, which lie from off on, the file
// holds.
func (t *track) inChunk(w boxReader, off, n, want int64) (got int64, err error) {
	remaining := w.File.Size - off
	if remaining <= 0 || off <= 0 {
		return 0, nil
	}
	if u := t.unit(); u.bytes > 0 {
		return min(want, remaining/u.bytes*u.samples), nil
	}
	for got < want {
		if !w.Spend(1) {
			return 0, w.Spent()
		}
		if remaining -= t.stsz.value(w, n+got); remaining < 0 {
			break
		}
		got++
	}
	return got, nil
}
