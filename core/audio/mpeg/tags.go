package mpeg

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	id3HeadLen  = 10
	maxHeadTags = 16
)

// SkipID3 returns the offset after the ID3v2 tags at the start, 0 without one. Some taggers write
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
		n := id3HeadLen + media.Syncsafe(h[6:])
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

const maxTailTags = 8

// tagsEnd returns where the audio ends: before the tags at the end of the file. Nothing before
// start is taken for one.
func tagsEnd(s *media.File, start int64) int64 {
	end := s.Size
	for range maxTailTags {
		from := max(0, end-media.TailTagPeek)
		n := media.TailTag(s.At(from, int(end-from)))
		if n <= 0 || n > end-start {
			break
		}
		end -= n
	}
	return end
}
