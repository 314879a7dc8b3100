package media

import "encoding/binary"

var le = binary.LittleEndian

// TailTagPeek is how much of the end of a file TailTag looks at.
const TailTagPeek = 128

const apeFootLen, id3HeadLen = 32, 10

// TailTag returns the length of the tag that ends with b, 0 without one. Sources: id3.org (ID3v1,
// ID3v2.4), the APEv2 specification.
func TailTag(b []byte) int64 {
	n := len(b)
	if n >= TailTagPeek && string(b[n-TailTagPeek:][:3]) == "TAG" {
		return TailTagPeek
	}
	if n < apeFootLen {
		return 0
	}
	switch foot := b[n-apeFootLen:]; {
	case string(foot[:8]) == "APETAGEX":
		size := int64(le.Uint32(foot[12:])) // of items and footer
		if foot[23]&0x80 != 0 {             // and of a header
			size += apeFootLen
		}
		return max(size, apeFootLen)
	case string(foot[apeFootLen-id3HeadLen:][:3]) == "3DI":
		return Syncsafe(foot[apeFootLen-4:]) + 2*id3HeadLen
	}
	return 0
}

// Syncsafe reads four bytes of seven bits.
func Syncsafe(b []byte) int64 {
	return int64(b[0]&0x7f)<<21 | int64(b[1]&0x7f)<<14 | int64(b[2]&0x7f)<<7 | int64(b[3]&0x7f)
}
