package ogg

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	minWindow = 4 << 10 // read first at the end
	// Sums of checksums that are tried in the end of a file, in bytes: hostile files have many
	// pages that are none.
	maxSummed = 4 << 20
	maxPageNo = 4096 // "OggS" that are looked at
)

type lastPage struct {
	page          // the last whole page of the audio that has a position
	claimed int64 // the position that a broken last page would have reached; 0 without one
	foreign bool  // the last page is of a stream that did not start at the front
	lost    bool  // no page found within reach of the end
}

// searchTail looks for pages backwards from the end of the file. The first window is sized by the
// pages at the front.
func (l *link) searchTail(s *media.File) lastPage {
	front := max(l.body, l.first.off)
	if off, ok := l.hop(s); ok {
		if t, done := l.searchPages(s.Head[off:], off, 0); done {
			return t
		}
	}
	for window := max(minWindow, l.first.len()*3/2); ; window *= 4 {
		off := max(front, s.Size-min(window, media.MaxRead))
		b := s.At(off, int(s.Size-off))
		t, done := l.searchPages(b, off, media.LastIndex(b, "OggS"))
		if done || off == front {
			return t
		}
		if window >= media.MaxRead {
			t.lost = true
			return t
		}
	}
}

// hop goes from page to page of a file that was read whole to the one that ends it, which is
// quicker than a search.
func (l *link) hop(s *media.File) (off int64, ok bool) {
	if l.first.head == 0 || int64(len(s.Head)) < s.Size {
		return 0, false
	}
	for p := l.first; ; {
		next := p.next()
		if next == s.Size {
			return p.off, true
		}
		if p, ok = pageAt(s.Head[min(next, s.Size):], next); !ok {
			return 0, false
		}
	}
}

// searchPages looks in b, the end of the file, from off on, for pages at i and before. done is
// false when no whole page of the audio is there.
func (l *link) searchPages(b []byte, off int64, i int) (t lastPage, done bool) {
	broken := page{granule: noPosition}
	summed := 0
	for tried := 0; i >= 0; i, tried = media.LastIndex(b[:i], "OggS"), tried+1 {
		if tried == maxPageNo || summed > maxSummed {
			t.lost = true
			return t, true
		}
		p, ok := pageAt(b[i:], off+int64(i))
		if !ok {
			p, ok = pageStub(b[i:], off+int64(i))
		}
		if !ok {
			continue
		}
		complete := int64(len(b)-i) >= p.len()
		if complete {
			summed += int(p.len())
			complete = intact(b[i : i+int(p.len())])
		}
		switch {
		case !complete:
			if p.serial == l.audio.serial && broken.granule == noPosition {
				broken = p
			}
		case !l.has(p.serial):
			return lastPage{foreign: true}, true
		case p.serial == l.audio.serial && p.granule != noPosition:
			t.page = p
			t.claimed = l.claimOf(broken, p.granule)
			return t, true
		}
	}
	t.claimed = l.claimOf(broken, 0)
	return t, false
}

// pageStub reads the header of a page that is cut inside it. Only its position and its stream are
// valid.
func pageStub(b []byte, off int64) (page, bool) {
	const stubLen = 18
	if len(b) < stubLen || len(b) >= pageHead+255 || b[4] != 0 {
		return page{}, false
	}
	granule, serial := int64(le.Uint64(b[6:])), le.Uint32(b[14:])
	return page{off: off, granule: granule, serial: serial, packets: 255, head: pageHead + 255},
		true
}

// claimOf returns the position that a broken page claims, if its packets could reach it from there;
// else 0.
func (l *link) claimOf(broken page, from int64) int64 {
	if reach := broken.granule - from; reach <= 0 ||
		reach > int64(broken.packets+1)*l.audio.maxSamples {
		return 0
	}
	return broken.granule
}

// repeats reports whether there is too much data before the last page for its number, as when files
// with the same serial number were joined. It may be wrong where page sizes vary a lot; a walk
// decides.
func (l *link) repeats(last lastPage) bool {
	if l.streams > 1 || l.first.head == 0 || last.off < l.first.off {
		return false
	}
	size := max(l.first.len(), last.len())
	pages := int64(last.number) - int64(l.first.number)
	return last.off-l.first.off > pages*size*3/2
}
