package audio

// adtsRates are in Hz, by the index of ISO/IEC 14496-3, table 1.18.
var adtsRates = [13]int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

const (
	adtsBlock    = 1024 // samples of a raw data block
	adtsCRCLen   = 2
	elementPCE   = 5  // a program config element, which tells the channels
	maxPCELen    = 64 // bytes with all its elements
	dualChannels = 2
)

// parseADTSHead reads the header of an ADTS frame. Source: ISO/IEC 13818-7, 6.2, and 14496-3, 1.A.2.
//
// The rate is that of the core: HE-AAC plays at the doubled one, which only a decoder finds out. The duration is the same.
func parseADTSHead(b []byte) (syncFrame, bool) {
	if len(b) < adtsHeadLen || b[0] != 0xff || b[1]&0xf6 != 0xf0 || int(b[2]>>2&15) >= len(adtsRates) {
		return syncFrame{}, false
	}
	f := syncFrame{
		kind:    uint32(b[1]&0x08)<<8 | uint32(b[2]&0xfc),
		size:    int32(b[3]&3)<<11 | int32(b[4])<<3 | int32(b[5])>>5,
		samples: adtsBlock * int32(b[6]&3+1),
	}
	return f, int(f.size) >= adtsHead(b)
}

// adtsHead is the length of the header, with the checksum that it announces.
func adtsHead(b []byte) int {
	if b[1]&1 == 0 {
		return adtsHeadLen + adtsCRCLen
	}
	return adtsHeadLen
}

// adtsChannels gives the channels of the frame that b starts with.
func adtsChannels(b []byte) int {
	if len(b) < adtsHeadLen {
		return dualChannels // the file shrank
	}
	switch code := int(b[2]&1<<2 | b[3]>>6); code {
	case 0:
		return pceChannels(b[min(adtsHead(b), len(b)):])
	case 7: // 7.1
		return 8
	default:
		return code
	}
}

// pceChannels counts the channels of a frame whose header leaves them to a program config element at the start of its data.
// Without one the frame is two single channels, as in Japanese broadcasts (ARIB STD-B32).
func pceChannels(data []byte) int {
	bits := bitReader{b: data}
	if bits.take(3) != elementPCE {
		return dualChannels
	}
	bits.take(4 + 2 + 4) // instance, profile, rate
	front, side, back, low := bits.take(4), bits.take(4), bits.take(4), bits.take(2)
	bits.take(3 + 4) // associated data and coupling elements: not channels
	for _, width := range [3]int{4, 4, 3} {
		if bits.take(1) == 1 { // how to mix down
			bits.take(width)
		}
	}
	channels := low
	for range front + side + back {
		channels += 1 + bits.take(1) // a pair counts twice
		bits.take(4)
	}
	if channels == 0 {
		return dualChannels
	}
	return channels
}

// bitReader takes bits from the highest on; behind the end they are 0.
type bitReader struct {
	b   []byte
	pos int
}

func (r *bitReader) take(n int) (v int) {
	for range n {
		v <<= 1
		if i := r.pos / 8; i < len(r.b) {
			v |= int(r.b[i] >> (7 - r.pos%8) & 1)
		}
		r.pos++
	}
	return v
}
