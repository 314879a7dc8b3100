package media

import (
	"hash/crc32"
	"math/bits"
)

// Stat is what the system reports of a file, and a digest of its content.
type Stat struct {
	Size int64 // bytes; negative when it is not known
	// when its content was changed, nanoseconds of Unix time, as far as the file system keeps them
	ModNS int64
	// when its content or anything else of it was changed; programs cannot set it back
	ChangeNS int64
	Digest   uint64 // of the bytes that were read, as of Digest; 0 when there were none
}

// UnknownStat is the Stat of a file that was not looked up.
var UnknownStat = Stat{Size: -1}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Digest marks an encoded file in memory by its first 4 KiB and its last. Files of the same size
// with the same digest are very likely copies. It is 0, saying nothing, when that is silence, as in
// uncompressed files.
func Digest(b []byte) uint64 {
	head := b[:min(len(b), ShortHeadLen)]
	end := b[max(len(head), len(b)-1<<10):]
	if len(end) > 0 && dull(head) && dull(end) {
		return 0
	}
	return digest(head, crc32.Checksum(end, castagnoli))
}

// Digest identifies the open file by the bytes that were read of it, and by a few more where those
// were silence. 0 means unknown.
func (s *File) Digest() uint64 {
	if s.complete && len(s.Head) > ShortHeadLen {
		s.mark(s.Head[ShortHeadLen:])
	}
	telling := s.complete && len(s.Head) <= ShortHeadLen || s.telling || !dull(s.Head)
	if !telling && !(s.extend(ShortHeadLen) && s.telling) {
		return 0
	}
	return digest(s.Head, s.tailSum)
}

func digest(head []byte, tail uint32) uint64 {
	head = head[:min(len(head), ShortHeadLen)]
	middle := len(head) / 2
	first, second := crc32.Checksum(head[:middle], castagnoli),
		crc32.Checksum(head[middle:], castagnoli)
	return uint64(first)<<32 | uint64(second^bits.RotateLeft32(tail, 16))
}

// fewValues is how many different bytes silence has, with some noise at the last bits.
const fewValues = 16

// dull reports whether the last bytes are too few or too uniform to distinguish one recording from
// another.
func dull(b []byte) bool {
	var bitmap [4]uint64
	values := 0
	for _, c := range b[max(0, len(b)-512):] {
		if bit := uint64(1) << (c % 64); bitmap[c/64]&bit == 0 {
			bitmap[c/64] |= bit
			if values++; values > fewValues {
				return false
			}
		}
	}
	return true
}
