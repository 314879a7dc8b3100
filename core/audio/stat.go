package audio

import "hash/crc32"

// Stat is what the system says of a file, and a mark of what it holds.
type Stat struct {
	Size     int64  // bytes; negative when it is not known
	ModNS    int64  // when its content was changed, nanoseconds of Unix time, as far as the file system keeps them
	ChangeNS int64  // when its content or anything else of it was changed; programs cannot set it back
	Digest   uint64 // of the first bytes, see Digest; 0 when the file was not read
}

// unknownStat is that of a file that was not asked about.
var unknownStat = Stat{Size: -1}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// plain is how many bytes must not be all the same for a digest to say anything.
const plain = 1 << 10

// Digest marks the head of an encoded file, at most the 8 KiB that are read of any file. Files of the same size with the
// same digest are very likely copies. It is 0, saying nothing, when the head ends in silence, as uncompressed files may.
func Digest(head []byte) uint64 {
	head = head[:min(len(head), headLen)]
	if len(head) == headLen && same(head[headLen-plain:]) {
		return 0
	}
	middle := len(head) / 2
	return uint64(crc32.Checksum(head[:middle], castagnoli))<<32 | uint64(crc32.Checksum(head[middle:], castagnoli))
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
