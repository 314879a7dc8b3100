package audio

import "bytes"

const (
	leapAfter = 1024    // pages of a link that are walked first: most links are shorter
	leapMin   = 4 << 20 // a shorter rest of the file is walked
	leapEnd   = 128 << 10
	leapPiece = 32 << 10 // read to find one page
	leapTries = 16       // "OggS" in it that are looked at
	leapCost  = 16       // pages that could be walked in the time of one look
)

// leap goes from a page of a long link near the end of it by halving: its pages come before all those of other streams. It is
// for files whose links differ in their serial numbers; the page's own number tells where one comes again.
func (w *oggWalk) leap(l *oggLink, here oggPage) {
	if w.s.size-here.off < leapMin {
		return
	}
	w.b = nil
	for hi := w.s.size; hi-here.off > leapEnd && w.pages < maxWalked; w.pages += leapCost {
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
func (w *oggWalk) near(l *oggLink, off int64) (oggPage, bool) {
	end := off + leapPiece
	for range leapTries {
		b := w.s.at(off, int(end-off))
		i := bytes.Index(b, []byte("OggS"))
		if i < 0 {
			break
		}
		off += int64(i)
		if p, ok := w.s.oggPage(off); ok && w.intact(p) {
			if !l.has(p.serial) || p.serial == l.audio.serial && p.granule != noPosition {
				return p, true
			}
			off = p.next()
			continue
		}
		off++
	}
	return oggPage{}, false
}
