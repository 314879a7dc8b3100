package codec

import "math/bits"

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
