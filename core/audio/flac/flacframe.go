package flac

import "github.com/mewkiz/flac/meta"

// Frame is the position of one frame, in samples per channel.
type Frame struct{ first, Samples int64 }

func (f Frame) end() int64 { return f.first + f.Samples }

// Code tables of the frame header, RFC 9639 section 9.1. 0: take it from the stream info; -1:
// reserved.
var (
	frameRates = [12]int{0, 88200, 176400, 192000, 8000, 16000, 22050, 24000, 32000, 44100, 48000,
		96000}
	frameBits = [8]int{0, 8, 12, -1, 16, 20, 24, 32}
)

const (
	frameSync    = 0xf8 // second byte, after 0xff; its low bit tells a variable block size
	MaxFrameHead = 16   // bytes, with the checksum
	maxStereo    = 10   // channel codes 8 to 10: two channels, as left/side, side/right, mid/side
)

// ParseFrameHeader reads a frame header that fits the stream info. The checksum and the fields that
// must agree make it practically certain: of random bytes, less than one in 10^9 passes.
func ParseFrameHeader(b []byte, si *meta.StreamInfo) (Frame, bool) {
	f, rate, ok := parseAnyHeader(b)
	if !ok || f.Samples == 0 || rate != 0 && rate != int(si.SampleRate) || !sameShape(b, si) {
		return Frame{}, false
	}
	if b[1]&1 == 0 { // a fixed block size: the number counts frames
		f.first *= int64(si.BlockSizeMax)
	}
	return f, true
}

// parseAnyHeader reads a frame header of any stream: first is its coded number, and rate is 0 where
// it refers to the stream info.
func parseAnyHeader(b []byte) (f Frame, rate int, ok bool) {
	if len(b) < 6 || b[0] != 0xff || b[1]&0xfe != frameSync || b[3]&1 != 0 {
		return Frame{}, 0, false
	}
	number, numberLen := codedNumber(b[4:])
	coded := b[4+numberLen:]
	samples, samplesLen := blockSamples(b[2]>>4, coded)
	rate, rateLen := sampleRate(b[2]&15, coded[min(samplesLen, len(coded)):])
	head := 4 + numberLen + samplesLen + rateLen
	return Frame{number, samples}, rate, numberLen > 0 && rate >= 0 && head < len(b) &&
		crc8(b[:head]) == b[head]
}

// sameShape reports whether channels and sample size are those of the stream.
func sameShape(b []byte, si *meta.StreamInfo) bool {
	code := int(b[3] >> 4)
	channels := code + 1
	switch {
	case code > maxStereo:
		return false
	case code >= 8:
		channels = 2
	}
	bits := frameBits[b[3]>>1&7]
	return channels == int(si.NChannels) && (bits == 0 || bits == int(si.BitsPerSample))
}

// codedNumber decodes the frame or sample number, UTF-8 stretched to 36 bits, and returns how many
// bytes it took; 0 if none.
func codedNumber(b []byte) (number int64, n int) {
	if b[0] < 0x80 {
		return int64(b[0]), 1
	}
	for n = 2; n <= 7 && b[0]<<n&0x80 != 0; n++ {
	}
	if b[0]&0x40 == 0 || n > 7 || len(b) < n {
		return 0, 0
	}
	number = int64(b[0] & (0xff >> (n + 1)))
	for _, c := range b[1:n] {
		if c&0xc0 != 0x80 {
			return 0, 0
		}
		number = number<<6 | int64(c&0x3f)
	}
	return number, n
}

// blockSamples returns the samples in a block by its code and, for codes 6 and 7, the n bytes
// after the number; 0 if reserved.
func blockSamples(code byte, b []byte) (samples int64, n int) {
	switch {
	case code == 1:
		return 192, 0
	case code >= 2 && code <= 5:
		return 576 << (code - 2), 0
	case code >= 8:
		return 256 << (code - 8), 0
	case code == 6 && len(b) >= 1:
		return int64(b[0]) + 1, 1
	case code == 7 && len(b) >= 2:
		return int64(b[0])<<8 + int64(b[1]) + 1, 2
	}
	return 0, 0
}

// sampleRate returns the rate in Hz by its code and, for codes 12 to 14, n more bytes; 0 for the
// stream's own, -1 if invalid.
func sampleRate(code byte, b []byte) (rate, n int) {
	switch {
	case int(code) < len(frameRates):
		return frameRates[code], 0
	case code == 12 && len(b) >= 1:
		return int(b[0]) * 1000, 1
	case code == 13 && len(b) >= 2:
		return int(b[0])<<8 + int(b[1]), 2
	case code == 14 && len(b) >= 2:
		return (int(b[0])<<8 + int(b[1])) * 10, 2
	}
	return -1, 0
}

// crc8Table holds the checksum of frame headers, polynomial x^8+x^2+x+1, for each byte.
var crc8Table = func() (t [256]byte) {
	for i := range t {
		sum := byte(i)
		for range 8 {
			sum = sum<<1 ^ sum>>7*0x07
		}
		t[i] = sum
	}
	return t
}()

func crc8(b []byte) (sum byte) {
	for _, x := range b {
		sum = crc8Table[sum^x]
	}
	return sum
}

// crc16Tables holds the checksum of frames, polynomial x^16+x^15+x^2+1, for a byte followed by 0 to
// 7 zero bytes.
var crc16Tables = func() (t [8][256]uint16) {
	for i := range 256 {
		sum := uint16(i) << 8
		for range 8 {
			sum = sum<<1 ^ sum>>15*0x8005
		}
		t[0][i] = sum
	}
	for k := 1; k < 8; k++ {
		for i := range 256 {
			t[k][i] = t[k-1][i]<<8 ^ t[0][t[k-1][i]>>8]
		}
	}
	return t
}()

// crc16 is 0 over a whole frame, its footer included.
func crc16(b []byte) (sum uint16) {
	t := &crc16Tables
	for ; len(b) >= 8; b = b[8:] {
		x := be.Uint64(b)
		low := t[5][byte(x>>40)] ^ t[4][byte(x>>32)] ^ t[3][byte(x>>24)] ^
			t[2][byte(x>>16)] ^ t[1][byte(x>>8)] ^ t[0][byte(x)]
		sum ^= uint16(x >> 48)
		sum = low ^ t[7][sum>>8] ^ t[6][byte(sum)]
	}
	for _, x := range b {
		sum = sum<<8 ^ t[0][byte(sum>>8)^x]
	}
	return sum
}
