package ogg

import (
	"bytes"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	maxWalked  = 1 << 16  // pages: a quarter of a gigabyte of usual ones
	maxSkipped = 16 << 20 // bytes read between pages in search of the next one, in all
	skipPiece  = 64 << 10
	linkCost   = 16 // pages that could be walked in the time that a new link takes
)

// walk goes over a file page by page, header by header.
type walk struct {
	media.Window
	off              int64
	pages, jumped    int64 // pages seen, bytes read to find the next
	seconds, claimed float64
	links            int
}

// walkLinks adds up the lengths of streams one after another. first is the link at base, and last
// describes the end of the file.
func walkLinks(s *media.File, base int64, first *link, last lastPage) (media.Info, error) {
	w := walk{Window: *media.NewWindow(s), off: first.body}
	var err error
	for link := first; link != nil; {
		if link, err = w.add(link, &last); err != nil {
			return media.Info{}, err
		}
	}
	if w.links == 1 && !last.lost && !last.foreign {
		return first.finish(s, last)
	}
	info := first.audio.info
	info.Method = "walked"
	if w.pages >= maxWalked {
		info.Method = "estimated"
		w.seconds *= float64(s.Size-base) / float64(w.off-base)
	}
	if w.seconds <= 0 {
		return media.Info{}, media.Corrupt("holds no audio")
	}
	info.DurationS = w.seconds
	if w.claimed != w.seconds && info.Method == "walked" {
		claimed := w.claimed // alone on the heap
		info.ClaimedS = &claimed
	}
	return info, nil
}

// add counts one link and returns the next, nil at the end.
func (w *walk) add(l *link, tail *lastPage) (next *link, err error) {
	last, before := w.follow(l)
	w.Forget()
	next, err = w.nextLink()
	if err != nil || l.audio == nil {
		return next, err
	}
	end := lastPage{lost: true}
	if next == nil && w.pages < maxWalked {
		if end = *tail; w.links > 0 {
			end = l.searchTail(w.File)
		}
	}
	if end.lost || end.foreign {
		if last.head > 0 && !w.intact(last) {
			last = before
		}
		end = lastPage{page: last}
	}
	samples, claimed, err := l.length(w.File, end)
	if err != nil {
		return nil, err
	}
	if claimed == 0 {
		claimed = samples
	}
	rate := float64(l.audio.info.SampleRate)
	w.seconds, w.claimed, w.links =
		w.seconds+float64(samples)/rate, w.claimed+float64(claimed)/rate, w.links+1
	return next, nil
}

// follow goes to the end of a link and returns its last two pages that have an audio position.
func (w *walk) follow(l *link) (last, before page) {
	var current page
	for ; w.pages < maxWalked && w.off < w.File.Size; w.pages++ {
		p, ok := pageAt(w.At(w.off, pageHead+255), w.off)
		if !ok || p.next() > w.File.Size {
			w.Forget()
			if current.head > 0 && !w.intact(current) {
				// it is cut, and another stream's page lies in it
				w.off = current.off
				if last.off == current.off {
					last = before
				}
			}
			if !w.skip() {
				break
			}
			current = page{}
			continue
		}
		if p.flags&flagBOS != 0 {
			break
		}
		if current = p; l.audio != nil && p.serial == l.audio.serial && p.granule != noPosition &&
			p.off >= l.first.off {
			before, last = last, p
		}
		w.off = p.next()
	}
	return last, before
}

func (w *walk) intact(p page) bool { return intact(w.File.At(p.off, int(p.len()))) }

// skip moves to the next whole page after foreign data; false if there is none within reach.
func (w *walk) skip() bool {
	for off := w.off + 1; off < w.File.Size && w.jumped < maxSkipped; {
		b := w.File.At(off, skipPiece)
		if len(b) == 0 {
			return false
		}
		w.jumped += int64(len(b))
		i := bytes.Index(b, []byte("OggS"))
		if i < 0 {
			off += max(1, int64(len(b))-3)
			continue
		}
		off += int64(i)
		if p, ok := readPage(w.File, off); ok && p.next() <= w.File.Size && w.intact(p) {
			w.off = off
			return true
		}
		off++
	}
	return false
}

// nextLink reads the link that starts where the walk stands; nil at the end of the file.
func (w *walk) nextLink() (*link, error) {
	p, ok := readPage(w.File, w.off)
	if !ok || p.next() > w.File.Size || p.flags&flagBOS == 0 || w.pages >= maxWalked {
		return nil, nil
	}
	l, err := linkAt(w.File, w.off)
	if err != nil || l.streams == 0 {
		return nil, err
	}
	w.off, w.pages = l.body, w.pages+int64(l.streams)+linkCost
	if l.audio == nil {
		return l, nil
	}
	return l, l.begin(w.File)
}
