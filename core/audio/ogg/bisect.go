package ogg

import "bytes"

const (
	bisectAfter = 1024    // pages of a link that are walked first: most links are shorter
	bisectMin   = 4 << 20 // a shorter rest of the file is walked
	bisectEnd   = 128 << 10
	bisectPiece = 32 << 10 // read to find one page
	bisectTries = 16       // "OggS" in it that are looked at
	bisectCost  = 16       // pages that could be walked in the time of one look
)

// bisect skips by binary search from a page of a long link to one near its end: all pages of a link
// come before those of the next. It is for files whose links have different serial numbers; page
// numbers detect a serial number that occurs again.
func (w *walk) bisect(l *link, current page) {
	if w.s.Size-current.off < bisectMin {
		return
	}
	w.b = nil
	for hi := w.s.Size; hi-current.off > bisectEnd && w.pages < maxWalked; w.pages += bisectCost {
		mid := current.off + (hi-current.off)/2
		if p, ok := w.near(l, mid); ok && p.serial == l.audio.serial && p.number > current.number {
			current = p
		} else {
			hi = mid
		}
	}
	w.off = current.off
}

// near finds the first page behind off that is of another link, or is of the audio and has a
// position.
func (w *walk) near(l *link, off int64) (page, bool) {
	end := off + bisectPiece
	for range bisectTries {
		b := w.s.At(off, int(end-off))
		i := bytes.Index(b, []byte("OggS"))
		if i < 0 {
			break
		}
		off += int64(i)
		if p, ok := readPage(w.s, off); ok && w.intact(p) {
			if !l.has(p.serial) || p.serial == l.audio.serial && p.granule != noPosition {
				return p, true
			}
			off = p.next()
			continue
		}
		off++
	}
	return page{}, false
}
