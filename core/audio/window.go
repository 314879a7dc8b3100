package audio

import "encoding/binary"

var be = binary.BigEndian

const (
	windowLen = 16 << 10 // one read of a window: the index of most short files
	hopLen    = 4 << 10  // one read while hopping from header to header
	// maxSteps bounds the steps taken in one file: some 40 ms. A table entry is one; what takes longer counts for more.
	maxSteps   = 1 << 22
	stepsHead  = 4 // the head of a box or an element
	stepsBlock = 8 // a block of Matroska
)

// window remembers the last stretch read of a source: a walk over small neighbouring structures then costs few reads.
type window struct {
	s     *source
	step  int    // least bytes of a read
	steps int    // that may still be taken
	own   []byte // for a window that must survive reads by others: its own copy
	off   int64
	b     []byte
}

func newWindow(s *source) *window { return &window{s: s, step: windowLen, steps: maxSteps} }

// beside gives a second window on the same source: each keeps its stretch while the other reads.
func (w *window) beside() *window {
	return &window{s: w.s, step: hopLen, steps: maxSteps / 2, own: make([]byte, hopLen)}
}

// at gives up to n bytes from off, fewer at the end of the file. They are valid until the next call.
func (w *window) at(off int64, n int) []byte {
	if off < 0 || off >= w.s.size || n <= 0 {
		return nil
	}
	n = int(min(int64(n), w.s.size-off))
	if off+int64(n) <= int64(len(w.s.head)) {
		return w.s.head[off : off+int64(n)]
	}
	if from := off - w.off; from < 0 || from+int64(n) > int64(len(w.b)) {
		w.off, w.b = off, w.s.at(off, max(n, w.step))
		if w.own != nil {
			w.b = w.own[:copy(w.own, w.b)]
		}
	}
	from := int(off - w.off)
	return w.b[from:min(from+n, len(w.b))]
}

// load reads n bytes from off, fewer at the end of the file, as the stretch that is remembered.
func (w *window) load(off int64, n int) []byte {
	w.off, w.b = off, w.s.at(off, n)
	return w.b
}

// forget drops the stretch, which windows beside this one have overwritten.
func (w *window) forget() { w.b = nil }

// spend takes steps off those that are left and says whether there were as many.
func (w *window) spend(steps int) bool {
	w.steps -= steps
	return w.steps >= 0
}

// spent is the error of a file that takes too many steps.
func (w *window) spent() error {
	return unsupported("has more parts than are looked at in bounded time")
}
