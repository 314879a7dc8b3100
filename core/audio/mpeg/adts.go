package mpeg

import (
	"github.com/asrconfig/asrconfig-go/core/audio/codec"
)

const (
	adtsBlock    = 1024 // samples of a raw data block
	adtsCRCLen   = 2
	elementPCE   = 5  // a program config element, which tells the channels
	maxPCELen    = 64 // bytes with all its elements
	dualChannels = 2
)

// parseADTSHead reads the header of an ADTS frame. Source: ISO/IEC 13818-7 and 14496-3.
//
// The rate is that of the core: HE-AAC plays at the doubled one, which only a decoder finds out.
// The duration is the same.
func parseADTSHead(b []byte) (syncFrame, bool) {
	if len(b) < adtsHeadLen || b[0] != 0xff || b[1]&0xf6 != 0xf0 ||
		int(b[2]>>2&15) >= len(codec.AACRates) {
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

// adtsChannels returns the channels of the frame that b starts with. A header may leave them to a
// program config element at the start of the data. Without one the frame is two single channels, as
// in Japanese broadcasts (ARIB STD-B32).
func adtsChannels(b []byte) int {
	if len(b) < adtsHeadLen {
		return dualChannels // the file shrank
	}
	if n := codec.AACChannels[b[2]&1<<2|b[3]>>6]; n > 0 {
		return n
	}
	r := &codec.BitReader{B: b[min(adtsHead(b), len(b)):]}
	if r.Read(3) != elementPCE {
		return dualChannels
	}
	return max(1, codec.ProgramChannels(r))
}
