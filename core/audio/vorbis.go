package audio

import "bytes"

const (
	vorbisHeadLen = 30
	maxPages      = 1 << 22 // walked in a chained file: some 16 GB
)

var vorbisMagic = []byte("\x01vorbis")

// vorbis is the identification header of a stream.
type vorbis struct {
	serial   uint32
	rate     int
	channels int
	short    int64 // block sizes in samples; a packet adds a quarter of its own and of the one before
	long     int64
}

// parseVorbisHead reads the first packet. Source: Vorbis I specification, 4.2.2.
func parseVorbisHead(b []byte) (*vorbis, error) {
	if len(b) < vorbisHeadLen {
		return nil, corrupt("ends inside its Vorbis header")
	}
	short, long := b[28]&15, b[28]>>4
	v := &vorbis{channels: int(b[11]), rate: int(le.Uint32(b[12:])), short: 1 << short, long: 1 << long}
	switch {
	case le.Uint32(b[7:]) != 0:
		return nil, unsupported("is Vorbis of version %d instead of 0", le.Uint32(b[7:]))
	case v.rate == 0:
		return nil, corrupt("has a sample rate of 0 Hz")
	case v.channels == 0:
		return nil, corrupt("has 0 channels")
	case short < 6 || long > 13 || short > long:
		return nil, corrupt("has Vorbis block sizes of 2^%d and 2^%d samples", short, long)
	}
	return v, nil
}

// length takes the sample position of the last whole page of the stream. headers is where the pages after the first ones of
// all streams begin; serials are those streams.
//
// jfreymuth/oggvorbis could tell the length too, but it reads 64 KiB and builds the codebooks first, believes a last page that
// is cut, mixes up streams, and panics on a page without segments. It serves as the judge in the tests.
func (v *vorbis) length(s *source, base, headers int64, serials map[uint32]bool) (Info, error) {
	info := Info{SampleRate: v.rate, Channels: v.channels, Codec: "vorbis", Method: "tail"}
	tail := v.lastPages(s, headers, serials)
	if tail.chained {
		return chainLength(s, base, info)
	}
	start, err := v.start(s, headers)
	if err != nil {
		return Info{}, err
	}
	held := max(0, tail.held-start)
	if held/v.long > s.size {
		return Info{}, corrupt("ends at sample %d, more than %d bytes can hold", tail.held, s.size)
	}
	return finish(info, held, max(0, tail.claimed-start))
}

// vorbisTail is what the last pages say, in samples per channel.
type vorbisTail struct {
	held    int64 // position at the end of the last whole page
	claimed int64 // the position that a cut last page would have reached; 0 without one
	chained bool  // the last page is of a stream that did not start at the front
}

// lastPages looks for pages backwards from the end of the file.
func (v *vorbis) lastPages(s *source, headers int64, serials map[uint32]bool) vorbisTail {
	for window := int64(headLen); ; window *= 4 {
		off := max(headers, s.size-window)
		t, done := v.searchTail(s.at(off, int(s.size-off)), off, s.size, serials)
		if done || off == headers || window >= 16*pageMax {
			return t
		}
	}
}

// searchTail looks in b, the last bytes of the file, from off on. done is false when no whole page of the stream is there.
func (v *vorbis) searchTail(b []byte, off, size int64, serials map[uint32]bool) (t vorbisTail, done bool) {
	for i := len(b); ; {
		i = bytes.LastIndex(b[:i], []byte("OggS"))
		if i < 0 {
			return t, false
		}
		p, ok := oggPageAt(b[i:], off+int64(i))
		switch {
		case !ok:
		case !serials[p.serial]:
			return vorbisTail{chained: true}, true
		case p.serial != v.serial || p.granule < 0:
		case p.next() > size:
			t.claimed = p.granule
		default:
			t.held = p.granule
			return t, true
		}
	}
}

// chainLength walks all pages of a file that is several streams one after another, and adds up their lengths.
func chainLength(s *source, base int64, info Info) (Info, error) {
	var links []float64 // seconds
	var v *vorbis       // the stream that the walk is in
	off := base
	for range maxPages {
		p, ok := s.oggPage(off)
		if !ok || p.next() > s.size {
			break
		}
		switch body := s.at(off+p.head, int(min(p.body, 64))); {
		case p.flags&flagBOS != 0 && bytes.HasPrefix(body, vorbisMagic):
			next, err := parseVorbisHead(body)
			if err != nil {
				return Info{}, err
			}
			v, next.serial, links = next, p.serial, append(links, 0)
		case v != nil && p.serial == v.serial && p.granule > 0 && p.granule/v.long <= s.size:
			links[len(links)-1] = float64(p.granule) / float64(v.rate)
		}
		off = p.next()
	}
	for _, seconds := range links {
		info.DurationS += seconds
	}
	if info.DurationS <= 0 {
		return Info{}, corrupt("holds no audio")
	}
	return info, nil
}
