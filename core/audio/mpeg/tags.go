package mpeg

import (
	"bytes"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	id3HeadLen  = 10
	maxHeadTags = 16
)

// SkipID3 returns the offset behind the ID3v2 tags at the start, 0 without one. Some taggers write
// them before FLAC too. Only their headers are read. A tag that claims the whole file or more is
// not skipped: then it is wrong, or all there is.
func SkipID3(s *media.File) int64 {
	var off int64
	for range maxHeadTags {
		h := s.At(off, id3HeadLen)
		if len(h) < id3HeadLen || string(h[:3]) != "ID3" || h[3] == 0xff || h[4] == 0xff ||
			(h[6]|h[7]|h[8]|h[9])&0x80 != 0 {
			break
		}
		n := id3HeadLen + syncsafe(h[6:])
		if h[5]&0x10 != 0 { // a footer
			n += id3HeadLen
		}
		if off+n >= s.Size {
			break
		}
		off += n
	}
	return off
}

const (
	id3v1Len, id3v1PlusLen, apeFootLen = 128, 227, 32
	maxTailTags                        = 8
	// of Lyrics3 version 1, which does not tell its length
	maxLyrics = 5100
)

// tagsEnd returns where the audio ends: before the tags at the end of the file. Nothing before
// start is taken for one.
func tagsEnd(s *media.File, start int64) int64 {
	end := s.Size
	for range maxTailTags {
		n := tailTag(s, end)
		if n <= 0 || n > end-start {
			break
		}
		end -= n
	}
	return end
}

// tailTag returns the length of the tag that ends at end, 0 without one. Sources: id3.org (ID3v1,
// ID3v2.4, Lyrics3), the APEv2 specification.
func tailTag(s *media.File, end int64) int64 {
	b := s.At(max(0, end-id3v1Len), int(min(end, id3v1Len)))
	n := len(b)
	if n == id3v1Len && string(b[:3]) == "TAG" {
		if end >= id3v1Len+id3v1PlusLen && bytes.HasPrefix(s.At(end-id3v1Len-id3v1PlusLen, 4),
			[]byte("TAG+")) {
			return id3v1Len + id3v1PlusLen
		}
		return id3v1Len
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
		return syncsafe(foot[apeFootLen-4:]) + 2*id3HeadLen
	case string(foot[apeFootLen-9:]) == "LYRICS200":
		return lyrics2Len(foot[apeFootLen-15:][:6])
	case string(foot[apeFootLen-9:]) == "LYRICSEND":
		from := max(0, end-maxLyrics-20)
		text := s.At(from, int(end-from))
		if i := bytes.LastIndex(text, []byte("LYRICSBEGIN")); i >= 0 {
			return int64(len(text) - i)
		}
	}
	return 0
}

// lyrics2Len reads the six digits before the end mark of Lyrics3 version 2.
func lyrics2Len(digits []byte) (n int64) {
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0
		}
		n = 10*n + int64(d-'0')
	}
	return n + int64(len(digits)) + 9
}

// syncsafe reads four bytes of seven bits.
func syncsafe(b []byte) int64 {
	return int64(b[0]&0x7f)<<21 | int64(b[1]&0x7f)<<14 | int64(b[2]&0x7f)<<7 | int64(b[3]&0x7f)
}
