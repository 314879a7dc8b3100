package codec

import "github.com/asrconfig/asrconfig-go/core/audio/media"

const (
	// of every position, and of what decoders give, whatever the rate before encoding was
	OpusRate       = 48000
	opusHeadLen    = 19
	MaxOpusSamples = 5760 // samples in a packet: 120 ms
	opusVersions   = 0xf0 // a version below 16 is read as 1
)

// Opus is the identification header of a stream.
type Opus struct {
	Channels int   // > 0
	PreSkip  int64 // samples at the start that decoders drop
}

// ParseOpus reads the identification header, the first packet. The sample rate in it is that of the
// source before encoding, and only a remark: decoders give 48000 Hz. Source: RFC 7845, section 5.1.
func ParseOpus(b []byte) (Opus, error) {
	if len(b) < opusHeadLen {
		return Opus{}, media.Corrupt("ends inside its Opus header")
	}
	switch {
	case b[8]&opusVersions != 0:
		return Opus{}, media.Unsupported("is Opus of version %d instead of 1", b[8])
	case b[9] == 0:
		return Opus{}, media.Corrupt("has 0 channels")
	}
	return Opus{Channels: int(b[9]), PreSkip: int64(le.Uint16(b[10:]))}, nil
}

// OpusSamples returns the samples of a packet by its first one or two bytes. Source: RFC 6716,
// section 3.1.
func OpusSamples(packet []byte) int64 {
	if len(packet) == 0 {
		return 0
	}
	config, frames := packet[0]>>3, int64(2)
	switch packet[0] & 3 {
	case 0:
		frames = 1
	case 3:
		if len(packet) < 2 {
			return 0
		}
		frames = int64(packet[1] & 0x3f)
	}
	var frame int64
	switch {
	case config >= 16: // CELT: 2.5 to 20 ms
		frame = 120 << (config & 3)
	case config >= 12: // hybrid: 10 or 20 ms
		frame = 480 << (config & 1)
	case config&3 == 3: // SILK: 60 ms
		frame = 2880
	default: // SILK: 10 to 40 ms
		frame = 480 << (config & 3)
	}
	if frames*frame > MaxOpusSamples {
		return 0 // not allowed
	}
	return frames * frame
}

// ALACSamples returns the samples per channel in a packet of Apple Lossless. Its head has the count
// where the packet is not full. Source: Apple "ALACAudioTypes" and its decoder: tag 3 bits,
// instance 4, unused 12, has size 1, shift 2, escape 1, size 32.
func ALACSamples(b []byte, full int64) int64 {
	if len(b) < 7 || b[2]&0x10 == 0 {
		return full
	}
	return min(full, int64(b[2]&1)<<31|int64(be.Uint32(b[3:])>>1))
}

// DolbySamples returns those of an E-AC-3 frame: 1 to 6 blocks of 256. Frames of other streams than
// the first add none. Source: ETSI TS 102 366.
func DolbySamples(b []byte) int64 {
	switch {
	case len(b) < 5 || b[0] != 0x0b || b[1] != 0x77:
		return 0
	case b[4]>>6 == 3:
		return 1536
	}
	return 256 * [4]int64{1, 2, 3, 6}[b[4]>>4&3]
}
