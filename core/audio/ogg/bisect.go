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

// bisect goes from a page of a long link near the end of it by halving: its pages come before all those of other streams. It is
// for files whose links differ in their serial numbers; the page's own number tells where one comes again.
func (w *walk) bisect(l *link, here page) {
	if w.s.Size-here.off < bisectMin {
		return
	}
	w.b = nil
	for hi := w.s.Size; hi-here.off > bisectEnd && w.pages < maxWalked; w.pages += bisectCost {
		mid := here.off + (hi-here.off)/2
		if p, ok := w.near(l, mid); ok && p.serial == l.audio.serial && p.number > here.number {
			here = p
		} else {
			hi = mid
		}
	}
	w.off = here.off
}

// near finds the first page behind off that is of another link, or is of the audio and has a position.
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
