package isobmff

import (
	"encoding/binary"
	"iter"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

var be = binary.BigEndian

const boxHead = 8 // bytes of a header: size and kind; 8 more follow where the size has 64 bits

// box is one box (QuickTime: atom) of an MP4 file. Source: ISO/IEC 14496-12.
type box struct {
	kind      [4]byte
	off       int64 // where its header starts in the file
	body, end int64 // where its content starts and ends; never past its parent's end
	cut       bool  // it claims to extend past its parent's end
	open      bool  // it states no size: it extends to its parent's end
}

func (b box) is(kind string) bool { return string(b.kind[:]) == kind }
func (b box) size() int64         { return b.end - b.body }

// boxReader finds boxes in a window on a file. Each header takes from the steps of the window,
// which bound the work for a file that is made of tiny boxes.
type boxReader struct{ *media.Window }

// boxes returns the boxes that lie from off to end. It stops before bytes that are no box.
func (w boxReader) boxes(off, end int64) iter.Seq[box] {
	return func(yield func(box) bool) {
		for end-off >= boxHead && w.Spend(media.StepsHead) {
			b, ok := w.box(off, end)
			if !ok || !yield(b) {
				return
			}
			off = b.end
		}
	}
}

// box reads the header at off of a box that ends at end or before.
func (w boxReader) box(off, end int64) (box, bool) {
	h := w.At(off, 2*boxHead)
	if len(h) < boxHead {
		return box{}, false
	}
	b := box{kind: [4]byte(h[4:8]), off: off, body: off + boxHead, end: end}
	size := uint64(be.Uint32(h))
	switch {
	case size == 0:
		b.open = true
		return b, true
	case size == 1: // the size follows the kind, in 64 bits
		if len(h) < 2*boxHead {
			return box{}, false
		}
		size, b.body = be.Uint64(h[8:]), off+2*boxHead
	}
	switch {
	case size < uint64(b.body-off):
		return box{}, false
	case size > uint64(end-off):
		b.cut = true
	default:
		b.end = off + int64(size)
	}
	return b, true
}

// find returns the first box of a kind inside another.
func (w boxReader) find(parent box, kind string) (box, bool) {
	for b := range w.boxes(parent.body, parent.end) {
		if b.is(kind) {
			return b, true
		}
	}
	return box{}, false
}

// path follows the kinds from a box to one inside it, taking the first box of each.
func (w boxReader) path(parent box, kinds ...string) (box, bool) {
	for _, kind := range kinds {
		b, ok := w.find(parent, kind)
		if !ok {
			return box{}, false
		}
		parent = b
	}
	return parent, true
}

// full reads the head of a full box (version and flags) and the n bytes after it, fewer where the
// box is shorter.
func (w boxReader) full(b box, n int) (version byte, flags uint32, body []byte) {
	h := w.At(b.body, int(min(int64(4+n), b.size())))
	if len(h) < 4 {
		return 0, 0, nil
	}
	return h[0], be.Uint32(h) & 0xffffff, h[4:]
}
