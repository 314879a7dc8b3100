package audio

// aacRates are the sample rates by index. Source: ISO/IEC 14496-3, table 1.18.
var aacRates = [13]int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

// aacChannels are the channels by configuration; 0: a list of them follows, or reserved.
var aacChannels = [16]int{0, 1, 2, 3, 4, 5, 6, 8, 0, 0, 0, 7, 8, 24, 8}

// Audio object types. Source: ISO/IEC 14496-3, table 1.17.
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

// aacConfig is an AudioSpecificConfig.
type aacConfig struct {
	codec    string // not AAC: what it is
	rate     int    // of what is played: twice the core's with SBR
	core     int
	channels int
	frame    int64 // samples of a frame at the core's rate; 0 when not known
}

// bitReader reads bits from the high end of each byte; behind the end it gives zeros.
type bitReader struct {
	b  []byte
	at int
}

func (r *bitReader) left() int { return 8*len(r.b) - r.at }

func (r *bitReader) read(n int) (x int) {
	for range n {
		x <<= 1
		if r.at < 8*len(r.b) {
			x |= int(r.b[r.at/8] >> (7 - r.at%8) & 1)
		}
		r.at++
	}
	return x
}

func (r *bitReader) objectType() int {
	if t := r.read(5); t != aotEscape {
		return t
	}
	return 32 + r.read(6)
}

// rate reads a sample rate; 0 if it is reserved.
func (r *bitReader) rate() int {
	switch i := r.read(4); {
	case i == rateEscape:
		return r.read(24)
	case i < len(aacRates):
		return aacRates[i]
	}
	return 0
}

// parseAACConfig reads the header of an AAC stream. Source: ISO/IEC 14496-3, 1.6.2.1.
func parseAACConfig(b []byte) (c aacConfig, ok bool) {
	r := &bitReader{b: b[:min(len(b), maxConfBits/8)]}
	object := r.objectType()
	c.core = r.rate()
	layout := r.read(4)
	c.rate, c.channels = c.core, aacChannels[layout]
	stereo := object == aotPS
	extended := object == aotSBR || object == aotPS
	if extended {
		c.rate = r.rate()
		if object = r.objectType(); object == aotBSAC {
			r.read(4)
		}
	}
	c.special(r, object, layout)
	if !extended {
		stereo = c.extension(r)
	}
	if stereo && c.channels == 1 {
		c.channels = 2
	}
	return c, c.rate > 0 && c.core > 0 && c.channels > 0
}

// special reads what the object type adds.
func (c *aacConfig) special(r *bitReader, object, layout int) {
	switch {
	case object >= aotLayer1 && object <= aotLayer3:
		c.codec = [3]string{"mp1", "mp2", "mp3"}[object-aotLayer1]
	case object == aotALS:
		c.codec = "mp4als"
	case object == aotELD:
		c.frame = 512 - 32*int64(r.read(1))
	case object == aotLD, object >= 1 && object <= 4, object == 6, object == 7, object >= 17 && object <= 22:
		short := int64(r.read(1))
		c.frame = 1024 - 64*short
		if object == aotLD {
			c.frame = 512 - 32*short
		}
		if r.read(1) == 1 { // depends on a core coder
			r.read(14)
		}
		r.read(1)
		if layout == 0 {
			c.channels = programChannels(r)
		}
	}
}

// programChannels counts the channels of a program config element. Source: ISO/IEC 14496-3, 4.4.1.1.
func programChannels(r *bitReader) (n int) {
	r.read(4 + 2 + 4) // tag, object type, rate
	elements := r.read(4) + r.read(4) + r.read(4)
	low := r.read(2)
	r.read(3 + 4) // associated data, coupling channels
	for _, width := range [3]int{4, 4, 3} {
		if r.read(1) == 1 {
			r.read(width)
		}
	}
	for range elements {
		n += 1 + r.read(1)
		r.read(4)
	}
	return n + low
}

// extension looks for the SBR and PS headers that old decoders pass over, as FFmpeg does; stereo is what PS makes of mono.
func (c *aacConfig) extension(r *bitReader) (stereo bool) {
	for r.left() > 15 {
		at := r.at
		if r.read(11) != syncSBR {
			r.at = at + 1
			continue
		}
		if r.objectType() == aotSBR && r.read(1) == 1 {
			if rate := r.rate(); rate > 0 {
				c.rate = rate
			}
			return r.left() > 11 && r.read(11) == syncPS && r.read(1) == 1
		}
		return false
	}
	return false
}
