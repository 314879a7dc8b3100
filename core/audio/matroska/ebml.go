package matroska

import (
	"encoding/binary"
	"iter"
	"math"
	"math/bits"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// element is one element of an EBML document. Source: RFC 8794, section 4 to 6.
type element struct {
	id        uint32
	body, end int64 // what is in it; never past its parent's end
	cut       bool  // it claims to extend past its parent's end
	open      bool  // it says no size: live streams
}

func (e element) size() int64 { return e.end - e.body }

type ebmlReader struct{ *media.Window }

const maxElementHead = 4 + 8

// element reads the header at off of an element that ends at end or before.
func (w ebmlReader) element(off, end int64) (element, bool) {
	h := w.At(off, int(min(maxElementHead, end-off)))
	id, n, _ := vint(h)
	if n == 0 || n > 4 {
		return element{}, false
	}
	size, m, unknown := vint(h[n:])
	if m == 0 {
		return element{}, false
	}
	id |= 1 << (7 * n) // the marker is part of an ID
	e := element{id: uint32(id), body: off + int64(n+m), end: end, open: unknown}
	switch {
	case unknown:
	case size > uint64(end-e.body):
		e.cut = true
	default:
		e.end = e.body + int64(size)
	}
	return e, true
}

// vint reads a number of variable length and returns how many bytes it took, 0 if there is none;
// ones are all bits set.
func vint(b []byte) (x uint64, n int, ones bool) {
	if len(b) == 0 || b[0] == 0 {
		return 0, 0, false
	}
	n = bits.LeadingZeros8(b[0]) + 1
	if len(b) < n {
		return 0, 0, false
	}
	x = uint64(b[0]) & (1<<(8-n) - 1)
	for _, c := range b[1:n] {
		x = x<<8 | uint64(c)
	}
	return x, n, x == 1<<(7*n)-1
}

// elements returns the children of an element of known size, up to the first that is none.
func (w ebmlReader) elements(parent element) iter.Seq[element] {
	return func(yield func(element) bool) {
		for off := parent.body; off < parent.end && w.Spend(media.StepsHead); {
			e, ok := w.element(off, parent.end)
			if !ok || e.open || !yield(e) {
				return
			}
			off = e.end
		}
	}
}

// number reads an unsigned integer of up to 8 bytes.
func (w ebmlReader) number(e element) (x uint64) {
	for _, c := range w.At(e.body, int(min(8, e.size()))) {
		x = x<<8 | uint64(c)
	}
	return x
}

// real reads a floating-point number of 4 or 8 bytes; 0 if it is not finite.
func (w ebmlReader) real(e element) (x float64) {
	switch e.size() {
	case 4:
		x = float64(math.Float32frombits(uint32(w.number(e))))
	case 8:
		x = math.Float64frombits(w.number(e))
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
