package codec

import "github.com/asrconfig/asrconfig-go/core/audio/media"

const vorbisHeadLen = 30

// Vorbis is the identification header of a stream, and what is needed to count packets.
//
// jfreymuth/oggvorbis could tell the length too, but it reads 64 KiB and builds the codebooks
// first, believes a last page that is cut, mixes up streams, and panics on a page without segments.
// It serves as the judge in the tests.
type Vorbis struct {
	Rate     int // Hz, > 0
	Channels int // > 0
	// block sizes in samples; a packet adds a quarter of its own and of the one before
	short  int64
	long   int64
	modes  modes
	before int64 // block size of the packet before
}

// ParseVorbis reads the identification header, the first packet. Source: Vorbis I specification,
// 4.2.2.
func ParseVorbis(b []byte) (*Vorbis, error) {
	if len(b) < vorbisHeadLen {
		return nil, media.Corrupt("ends inside its Vorbis header")
	}
	short, long, rate := b[28]&15, b[28]>>4, le.Uint32(b[12:])
	switch {
	case le.Uint32(b[7:]) != 0:
		return nil, media.Unsupported("is Vorbis of version %d instead of 0", le.Uint32(b[7:]))
	case rate == 0:
		return nil, media.Corrupt("has a sample rate of 0 Hz")
	case b[11] == 0:
		return nil, media.Corrupt("has 0 channels")
	case short < 6 || long > 13 || short > long:
		return nil, media.Corrupt("has Vorbis block sizes of 2^%d and 2^%d samples", short, long)
	}
	return &Vorbis{Rate: int(rate), Channels: int(b[11]), short: 1 << short, long: 1 << long}, nil
}

// Most: no packet gives more samples.
func (v *Vorbis) Most() int64 { return v.long / 2 }

// Setup takes the modes from the last VorbisSetupLen bytes of the setup header, or from all of it,
// and reports whether they are there. The next packet is the first.
func (v *Vorbis) Setup(header []byte) bool {
	v.modes, v.before = findModes(header), 0
	return v.modes.count > 0
}

// Samples: the first packet gives none.
func (v *Vorbis) Samples(packet []byte) (n int64) {
	if len(packet) == 0 {
		return 0
	}
	size := v.blockSize(packet[0])
	if v.before > 0 {
		n = v.before/4 + size/4
	}
	v.before = size
	return n
}
