package codec

import (
	"math/bits"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	vorbisHeadLen = 30
	maxModes      = 64
	modeBits      = 41 // block flag 1, window type 16, transform type 16, mapping 8
	// VorbisSetupLen is how many bytes at the end of a setup header hold every mode: a count of 6
	// bits, up to 64 modes, and the framing bit.
	VorbisSetupLen = (6+maxModes*modeBits+8)/8 + 1
)

// Vorbis counts the samples of a Vorbis stream in Ogg or Matroska from the first byte of each
// packet: ParseVorbis reads the first header packet, Setup the third, and Samples then the audio
// packets in their order.
//
// jfreymuth/oggvorbis returns the length, too. But it reads 64 KiB and builds the codebooks first,
// counts a truncated last page in full, mixes up streams, and panics on a page without segments.
type Vorbis struct {
	Rate     int   // Hz, > 0
	Channels int   // > 0
	short    int64 // the two block sizes in samples
	long     int64
	modes    modes
	previous int64 // block size of the packet before; 0 before the first
}

// ParseVorbis reads the identification header, the first packet. Source: Vorbis I specification,
// 4.2.2 (identification header).
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

// MaxPacketSamples returns the most samples that one packet adds.
func (v *Vorbis) MaxPacketSamples() int64 { return v.long / 2 }

// Setup reads the modes from the last VorbisSetupLen bytes of the setup header, or from all of it,
// and reports whether there are any. The packet after it counts as the first.
func (v *Vorbis) Setup(header []byte) bool {
	v.modes, v.previous = findModes(header), 0
	return v.modes.count > 0
}

// Samples returns how many samples the next packet adds (Vorbis I specification, 4.3.8,
// overlap-add): a quarter of its block and a quarter of the one before, as their windows overlap.
// The first packet adds none.
func (v *Vorbis) Samples(packet []byte) (n int64) {
	if len(packet) == 0 {
		return 0
	}
	size := v.blockSize(packet[0])
	if v.previous > 0 {
		n = v.previous/4 + size/4
	}
	v.previous = size
	return n
}

// modes are the modes of a stream; bit i of long is set when mode i uses the long block.
type modes struct {
	long  uint64
	count int
}

// blockSize returns the block size of an audio packet by its first byte (Vorbis I specification,
// 4.3.1, packet type, mode and window decode): a bit that is 0, then the number of the mode.
func (v *Vorbis) blockSize(first byte) int64 {
	width := bits.Len(uint(v.modes.count - 1))
	if mode := int(first>>1) & (1<<width - 1); mode < v.modes.count && v.modes.long>>mode&1 == 1 {
		return v.long
	}
	return v.short
}

// findModes reads the modes of a setup header (Vorbis I specification, 4.2.4) backwards from its
// end: to read them from the front, all codebooks would have to be built. It reads while the bits
// can be a mode, with window and transform type 0, and takes the largest number of modes that is
// also the count in front of them.
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

// lastBit returns the index of the last set bit, -1 without one. Vorbis counts bits from the low
// one of the first byte.
func lastBit(b []byte) int {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return 8*i + bits.Len8(b[i]) - 1
		}
	}
	return -1
}

// bitsAt returns the n bits from index pos on, at most 57; bits past the end are 0.
func bitsAt(b []byte, pos, n int) uint64 {
	var eight [8]byte
	copy(eight[:], b[pos/8:])
	return le.Uint64(eight[:]) >> (pos % 8) & (1<<n - 1)
}
