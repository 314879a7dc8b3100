package isobmff

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// run adds the samples of a trun box.
func (m *movie) run(f *traf, b box, ours bool) error {
	_, flags, h := m.w.full(b, 12)
	if len(h) < 4 {
		return nil
	}
	count, off := int64(be.Uint32(h)), b.body+8
	if flags&trunOffset != 0 && len(h) >= 8 {
		f.next = f.base + int64(int32(be.Uint32(h[4:])))
		off += 4
	}
	if flags&trunFirstFlags != 0 {
		off += 4
	}
	width := int64(0)
	for _, flag := range []uint32{trunDuration, trunSize, trunFlags, trunShift} {
		if flags&flag != 0 {
			width += 4
		}
	}
	if width == 0 {
		return m.equal(f, count, ours)
	}
	for i := range min(count, (b.end-off)/width) {
		e := m.w.At(off+i*width, int(width))
		if int64(len(e)) < width || !m.w.Spend(2) {
			break
		}
		duration, size := f.duration, f.size
		if flags&trunDuration != 0 {
			duration, e = int64(be.Uint32(e)), e[4:]
		}
		if flags&trunSize != 0 {
			size = int64(be.Uint32(e))
		}
		if err := m.samples(f, 1, duration, size, ours); err != nil {
			return err
		}
	}
	return nil
}

// equal adds count samples of default duration and size.
func (m *movie) equal(f *traf, count int64, ours bool) error {
	if f.size == 0 { // samples of nothing
		return nil
	}
	present := min(count, max(0, m.w.File.Size-f.next)/f.size)
	if err := m.samples(f, present, f.duration, f.size, ours); err != nil || present == count {
		return err
	}
	return m.samples(f, count-present, f.duration, f.size, ours)
}

// samples adds n samples of the same duration and size, all of them in the file or none.
func (m *movie) samples(f *traf, n, duration, size int64, ours bool) error {
	f.next += n * size
	if !ours || n == 0 || size == 0 {
		return nil
	}
	if m.track.longest > 0 {
		duration = min(duration, m.track.longest)
	}
	if duration > 0 && n > (media.MaxTicks-m.all)/duration {
		return media.Corrupt("claims samples that play for more than 2^53 ticks")
	}
	m.all += n * duration
	m.cut = m.cut || f.next > m.w.File.Size
	if !m.cut {
		m.present += n * duration
	}
	return nil
}
