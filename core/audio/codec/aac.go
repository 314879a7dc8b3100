// Package codec counts the samples of a packet and parses the headers of codecs, for the containers
// that carry them.
package codec

import "encoding/binary"

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// AACRates are the sample rates by index. Source: ISO/IEC 14496-3.
var AACRates = [13]int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025,
	8000, 7350}

// AACChannels are the channels by configuration; 0: a list of them follows, or reserved.
var AACChannels = [16]int{0, 1, 2, 3, 4, 5, 6, 8, 0, 0, 0, 7, 8, 24, 8}

// Audio object types. Source: ISO/IEC 14496-3.
const (
	aotSBR      = 5
	aotBSAC     = 22
	aotLD       = 23
	aotPS       = 29
	aotLayer1   = 32
	aotLayer3   = 34
	aotALS      = 36
	aotELD      = 39
	aotEscape   = 31
	syncSBR     = 0x2b7
	syncPS      = 0x548
	rateEscape  = 15
	maxConfBits = 64 * 8
)

// AAC is an AudioSpecificConfig.
type AAC struct {
	Codec    string // not AAC: what it is
	Rate     int    // of what is played: twice the core's with SBR
	Core     int
	Channels int
	Frame    int64 // samples of a frame at the core's rate; 0 when not known
}

// BitReader reads bits from the high end of each byte; past the end it returns zeros.
type BitReader struct {
	B   []byte
	pos int
}

func (r *BitReader) remaining() int { return 8*len(r.B) - r.pos }

// Read returns the number in the next n bits.
func (r *BitReader) Read(n int) (x int) {
	for range n {
		x <<= 1
		if r.pos < 8*len(r.B) {
			x |= int(r.B[r.pos/8] >> (7 - r.pos%8) & 1)
		}
		r.pos++
	}
	return x
}

func (r *BitReader) objectType() int {
	if t := r.Read(5); t != aotEscape {
		return t
	}
	return 32 + r.Read(6)
}

// rate reads a sample rate; 0 if it is reserved.
func (r *BitReader) rate() int {
	switch i := r.Read(4); {
	case i == rateEscape:
		return r.Read(24)
	case i < len(AACRates):
		return AACRates[i]
	}
	return 0
}

// ParseAAC reads the header of an AAC stream. Source: ISO/IEC 14496-3.
func ParseAAC(b []byte) (c AAC, ok bool) {
	r := &BitReader{B: b[:min(len(b), maxConfBits/8)]}
	object := r.objectType()
	c.Core = r.rate()
	layout := r.Read(4)
	c.Rate, c.Channels = c.Core, AACChannels[layout]
	stereo := object == aotPS
	extended := object == aotSBR || object == aotPS
	if extended {
		c.Rate = r.rate()
		if object = r.objectType(); object == aotBSAC {
			r.Read(4)
		}
	}
	c.special(r, object, layout)
	if !extended {
		stereo = c.extension(r)
	}
	if stereo && c.Channels == 1 {
		c.Channels = 2
	}
	return c, c.Rate > 0 && c.Core > 0 && c.Channels > 0
}

// special reads what the object type adds.
func (c *AAC) special(r *BitReader, object, layout int) {
	switch {
	case object >= aotLayer1 && object <= aotLayer3:
		c.Codec = [3]string{"mp1", "mp2", "mp3"}[object-aotLayer1]
	case object == aotALS:
		c.Codec = "mp4als"
	case object == aotELD:
		c.Frame = 512 - 32*int64(r.Read(1))
	case object == aotLD, object >= 1 && object <= 4, object == 6, object == 7, object >= 17 &&
		object <= 22:
		short := int64(r.Read(1))
		c.Frame = 1024 - 64*short
		if object == aotLD {
			c.Frame = 512 - 32*short
		}
		if r.Read(1) == 1 { // depends on a core coder
			r.Read(14)
		}
		r.Read(1)
		if layout == 0 {
			c.Channels = ProgramChannels(r)
		}
	}
}

// ProgramChannels counts the channels of a program config element. Source: ISO/IEC 14496-3.
func ProgramChannels(r *BitReader) (n int) {
	r.Read(4 + 2 + 4) // tag, object type, rate
	elements := r.Read(4) + r.Read(4) + r.Read(4)
	low := r.Read(2)
	r.Read(3 + 4) // associated data, coupling channels
	for _, width := range [3]int{4, 4, 3} {
		if r.Read(1) == 1 {
			r.Read(width)
		}
	}
	for range elements {
		n += 1 + r.Read(1)
		r.Read(4)
	}
	return n + low
}

// extension looks for the SBR and PS headers that old decoders pass over, as FFmpeg does; stereo is
// what PS makes of mono.
func (c *AAC) extension(r *BitReader) (stereo bool) {
	for r.remaining() > 15 {
		start := r.pos
		if r.Read(11) != syncSBR {
			r.pos = start + 1
			continue
		}
		if r.objectType() == aotSBR && r.Read(1) == 1 {
			if rate := r.rate(); rate > 0 {
				c.Rate = rate
			}
			return r.remaining() > 11 && r.Read(11) == syncPS && r.Read(1) == 1
		}
		return false
	}
	return false
}
