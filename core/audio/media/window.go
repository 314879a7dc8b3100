package media

import "bytes"

const (
	WindowLen = 16 << 10 // one read of a window: the index of most short files
	HopLen    = 4 << 10  // one read while hopping from header to header
	// MaxSteps bounds the steps taken in one file: some 40 ms. A table entry is one; what takes
	// longer counts for more.
	MaxSteps   = 1 << 22
	StepsHead  = 4 // the head of a box or an element
	StepsBlock = 8 // a block of Matroska
)

// Window remembers the last stretch read of a source: a walk over small neighbouring structures
// then costs few reads.
type Window struct {
	File  *File
	Step  int    // least bytes of a read
	Steps int    // that may still be taken
	own   []byte // for a window that must survive reads by others: its own copy
	off   int64
	b     []byte
}

// NewWindow starts without a stretch.
func NewWindow(s *File) *Window { return &Window{File: s, Step: WindowLen, Steps: MaxSteps} }

// Beside returns a second window on the same source: each keeps its stretch while the other reads.
func (w *Window) Beside() *Window {
	return &Window{File: w.File, Step: HopLen, Steps: MaxSteps / 2, own: make([]byte, HopLen)}
}

// At returns up to n bytes from off, fewer at the end of the file. They are valid until the next
// call.
func (w *Window) At(off int64, n int) []byte {
	if off < 0 || off >= w.File.Size || n <= 0 {
		return nil
	}
	n = int(min(int64(n), w.File.Size-off))
	if off+int64(n) <= int64(len(w.File.Head)) {
		return w.File.Head[off : off+int64(n)]
	}
	if from := off - w.off; from < 0 || from+int64(n) > int64(len(w.b)) {
		w.off, w.b = off, w.File.At(off, max(n, w.Step))
		if w.own != nil {
			w.b = w.own[:copy(w.own, w.b)]
		}
	}
	from := int(off - w.off)
	return w.b[from:min(from+n, len(w.b))]
}

// Load reads n bytes from off, fewer at the end of the file, as the stretch that is remembered.
func (w *Window) Load(off int64, n int) []byte {
	w.off, w.b = off, w.File.At(off, n)
	return w.b
}

// Forget drops the stretch, which windows beside this one have overwritten.
func (w *Window) Forget() { w.b = nil }

// Spend subtracts steps from those that remain and reports whether there were enough.
func (w *Window) Spend(steps int) bool {
	w.Steps -= steps
	return w.Steps >= 0
}

// Spent is the error of a file that takes too many steps.
func (w *Window) Spent() error {
	return Unsupported("has more parts than this library reads")
}

// LastIndex is bytes.LastIndex made of searches forward through short pieces, which the processor
// does many times faster.
func LastIndex(b []byte, sep string) int {
	const piece = 256
	want := []byte(sep)
	for hi := len(b); hi > 0; hi -= piece {
		lo := max(0, hi-piece)
		last, text := -1, b[lo:min(len(b), hi+len(sep)-1)]
		for from := 0; ; {
			i := bytes.Index(text[from:], want)
			if i < 0 {
				break
			}
			last = lo + from + i
			from += i + 1
		}
		if last >= 0 {
			return last
		}
	}
	return -1
}
