package audio

import (
	"hash/crc32"
	"math/bits"
)

// Stat is what the system says of a file, and a mark of what it holds.
type Stat struct {
	Size     int64  // bytes; negative when it is not known
	ModNS    int64  // when its content was changed, nanoseconds of Unix time, as far as the file system keeps them
	ChangeNS int64  // when its content or anything else of it was changed; programs cannot set it back
	Digest   uint64 // of the bytes that were read, as of Digest; 0 when there were none
}

// unknownStat is that of a file that was not asked about.
var unknownStat = Stat{Size: -1}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// plain is how many bytes must not be all the same for a digest to say anything.
const plain = 1 << 10

// Digest marks an encoded file in memory by its first 4 KiB and its last. Files of the same size with the same digest are
// very likely copies. It is 0, saying nothing, when the head ends in silence, as that of uncompressed files may.
func Digest(b []byte) uint64 {
	rest := b[min(len(b), shortHeadLen):]
	end, mark := rest[max(0, len(rest)-plain):], uint32(0)
	if !same(end) {
		mark = crc32.Checksum(end, castagnoli)
	}
	return digest(b[:len(b)-len(rest)], mark)
}

// digest marks a file by its head and the checksum of what else was read of it.
func digest(head []byte, rest uint32) uint64 {
	if rest == 0 && len(head) >= shortHeadLen && same(head[len(head)-plain:]) {
		return 0
	}
	middle := len(head) / 2
	first, second := crc32.Checksum(head[:middle], castagnoli), crc32.Checksum(head[middle:], castagnoli)
	return uint64(first)<<32 | uint64(second^bits.RotateLeft32(rest, 16))
}

// same says whether all bytes are equal.
func same(b []byte) bool {
	for i := range b {
		if b[i] != b[0] {
			return false
		}
	}
	return true
}
