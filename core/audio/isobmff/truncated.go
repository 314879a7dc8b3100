package isobmff

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
