package codec

import (
	"math/bits"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

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

const (
	maxModes = 64
	modeBits = 41 // block flag 1, window type 16, transform type 16, mapping 8
	// VorbisSetupLen is enough of the setup header to hold every mode: 6 bits of count, 64 modes,
	// the framing bit, in bytes.
	VorbisSetupLen = (6+maxModes*modeBits+8)/8 + 1
)

// modes has a bit for each mode: whether it uses the long block.
type modes struct {
	long  uint64
	count int
}

// blockSize reads the mode at the start of an audio packet: one bit 0, then the mode's number.
func (v *Vorbis) blockSize(b byte) int64 {
	width := bits.Len(uint(v.modes.count - 1))
	if mode := int(b>>1) & (1<<width - 1); mode < v.modes.count && v.modes.long>>mode&1 == 1 {
		return v.long
	}
	return v.short
}

// findModes reads the modes from the end of the setup header, as parsing from the front would mean
// to build all codebooks. Each has window and transform type 0, and the count before them fits.
// Source: Vorbis I specification, 4.2.4.
func findModes(setup []byte) (m modes) {
	end := lastBit(setup) // the framing bit
	long := uint64(0)
	for count := 1; count <= maxModes; count++ {
		pos := end - count*modeBits
		if pos < 6 || bitsAt(setup, pos+1, 32) != 0 || bitsAt(setup, pos+33, 8) >= maxModes {
			break
		}
		long = long<<1 | bitsAt(setup, pos, 1)
		if bitsAt(setup, pos-6, 6) == uint64(count-1) {
			m = modes{long, count}
		}
	}
	return m
}

// lastBit is the index of the last set bit, -1 without one. Vorbis counts from the low bit of the
// first byte.
func lastBit(b []byte) int {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return 8*i + bits.Len8(b[i]) - 1
		}
	}
	return -1
}

// bitsAt reads up to 57 bits.
func bitsAt(b []byte, pos, n int) uint64 {
	var eight [8]byte
	copy(eight[:], b[pos/8:])
	return le.Uint64(eight[:]) >> (pos % 8) & (1<<n - 1)
}
