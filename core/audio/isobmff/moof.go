package isobmff

import "github.com/asrconfig/asrconfig-go/core/audio/media"

// fragments is what the movie fragments of a file add up to. Source: ISO/IEC 14496-12.
type fragments struct {
	starts  int64 // moof boxes seen
	all     int64 // ticks that they tell of
	present int64 // ticks of samples that the file holds
	cut     bool  // a sample was missing: nothing after it counts
	first   int64 // decode time of the first one, in ticks
	timed   bool  // first is known
	mehd    int64 // what the header of the fragments claims, in ticks of the movie's clock
	claimed int64 // what segment indexes claim, in ticks
	trex    map[uint32][2]int64
}

// Flags of tfhd and trun.
const (
	tfhdBase, tfhdDescription, tfhdDuration, tfhdSize = 0x1, 0x2, 0x8, 0x10
	trunOffset, trunFirstFlags                        = 0x1, 0x4
	trunDuration, trunSize, trunFlags, trunShift      = 0x100, 0x200, 0x400, 0x800
	tfhdBaseIsMoof                                    = 0x20000
)

// extends reads the defaults of every track: duration and size of a sample.
func (m *movie) extends(mvex box) {
	m.trex = make(map[uint32][2]int64)
	for b := range m.w.boxes(mvex.body, mvex.end) {
		version, _, h := m.w.full(b, 20)
		switch {
		case b.is("trex") && len(h) == 20 && len(m.trex) < maxEdits:
			m.trex[be.Uint32(h)] = [2]int64{int64(be.Uint32(h[8:])), int64(be.Uint32(h[12:]))}
		case b.is("mehd") && version == 0 && len(h) >= 4:
			m.mehd = int64(be.Uint32(h))
		case b.is("mehd") && version == 1 && len(h) >= 8:
			m.mehd = int64(min(be.Uint64(h), media.MaxTicks))
		}
	}
}

func (m *movie) fragment(moof box) error {
	if moof.cut {
		m.cut = true
		return nil
	}
	next := moof.off
	for b := range m.w.boxes(moof.body, moof.end) {
		if !b.is("traf") {
			continue
		}
		end, err := m.trackFragment(moof, b, next)
		if err != nil {
			return err
		}
		next = end
	}
	return nil
}

type traf struct {
	duration, size int64 // of a sample that does not say
	next           int64 // where its next sample lies
	base           int64 // what the offsets of its runs count from
}

// trackFragment adds the runs of a traf box when it is of the audio track. after is where the data
// of the one before ended.
func (m *movie) trackFragment(moof, b box, after int64) (end int64, err error) {
	var f traf
	ours := false
	for b := range m.w.boxes(b.body, b.end) {
		version, flags, h := m.w.full(b, 32)
		switch string(b.kind[:]) {
		case "tfhd":
			if len(h) < 4 {
				return after, nil
			}
			id := be.Uint32(h)
			ours = id == m.track.id
			f = m.header(flags, h[4:], moof.off, after, m.trex[id])
		case "tfdt":
			if ours && !m.timed && len(h) >= 4 {
				m.first, m.timed = int64(be.Uint32(h)), true
				if version == 1 && len(h) >= 8 {
					m.first = int64(min(be.Uint64(h), media.MaxTicks))
				}
			}
		case "trun":
			if err := m.run(&f, b, ours); err != nil {
				return 0, err
			}
		}
	}
	return f.next, nil
}

// header reads a tfhd box after the track's number.
func (m *movie) header(flags uint32, h []byte, moof, after int64, defaults [2]int64) traf {
	f := traf{duration: defaults[0], size: defaults[1], base: after}
	field := func(flag uint32, n int) []byte {
		if flags&flag == 0 || len(h) < n {
			return nil
		}
		x := h[:n]
		h = h[n:]
		return x
	}
	if x := field(tfhdBase, 8); x != nil {
		f.base = int64(min(be.Uint64(x), 1<<62))
	} else if flags&tfhdBaseIsMoof != 0 {
		f.base = moof
	}
	field(tfhdDescription, 4)
	if x := field(tfhdDuration, 4); x != nil {
		f.duration = int64(be.Uint32(x))
	}
	if x := field(tfhdSize, 4); x != nil {
		f.size = int64(be.Uint32(x))
	}
	f.next = f.base
	return f
}

// sidx adds the duration that a segment index claims: a hint only, for a file whose end is missing.
func (m *movie) sidx(b box) {
	version, _, h := m.w.full(b, 28)
	offset := 16 + 8*int(version&1)
	if m.track == nil || len(h) < offset+4 {
		return
	}
	scale, n := int64(be.Uint32(h[4:])), int64(be.Uint16(h[offset+2:]))
	if scale == 0 {
		return
	}
	var sum int64
	entries := b.body + 4 + int64(offset) + 4
	for i := range min(n, (b.end-entries)/12) {
		if e := m.w.At(entries+12*i, 8); len(e) == 8 {
			sum += int64(be.Uint32(e[4:]))
		}
	}
	m.claimed = min(m.claimed+m.rescale(sum, scale), media.MaxTicks)
}

// rescale turns ticks of another clock into those of the track.
func (m *movie) rescale(ticks, scale int64) int64 {
	return int64(min(float64(ticks)*float64(m.track.scale)/float64(scale), media.MaxTicks))
}

// fragmentLength is the length of a file of fragments: those of its index, if any, and all that
// follow. Edits of a piece that starts later than its media does have been played before it.
func (m *movie) fragmentLength() (media.Info, error) {
	t := m.track
	m.settled()
	present, all, err := m.tableTicks()
	if err != nil {
		return media.Info{}, err
	}
	t.info.Method = "walked"
	for i := range t.edits {
		t.edits[i].start = max(0, t.edits[i].start-m.first)
		t.edits[i].end = max(0, t.edits[i].end-m.first)
	}
	claimed := m.claimed
	if m.mehd > 0 && m.timescale > 0 {
		claimed = m.rescale(m.mehd, m.timescale)
	}
	return t.finish(present+m.present, all+m.all, claimed)
}

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
