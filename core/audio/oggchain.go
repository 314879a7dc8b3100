package audio

import "bytes"

const (
	maxWalked  = 1 << 17  // pages: half a gigabyte of usual ones
	maxSkipped = 16 << 20 // bytes read between pages in search of the next one, in all
	skipPiece  = 64 << 10
)

// oggWalk goes over a file page by page, header by header.
type oggWalk struct {
	s             *source
	off           int64
	pages, jumped int64 // pages seen, bytes read to find the next
	held, claimed float64
	links         int
}

// walkOgg adds up the lengths of streams one after another. first is the link at base, and last what the end of the file says.
func walkOgg(s *source, base int64, first *oggLink, last oggTail) (Info, error) {
	w := &oggWalk{s: s, off: first.body}
	for link := first; link != nil; {
		next, err := w.add(link)
		if err != nil {
			return Info{}, err
		}
		link = next
	}
	told := !last.lost && !last.foreign
	if told && (w.links == 1 || w.pages >= maxWalked) {
		held, claimed, err := first.length(s, last.granule, last.claimed)
		if err != nil {
			return Info{}, err
		}
		return finish(first.info(held), held, claimed)
	}
	info := first.audio.info
	info.Method = "walked"
	if w.pages >= maxWalked {
		info.Method = "estimated"
		w.held *= float64(s.size-base) / float64(w.off-base)
	}
	if w.held <= 0 {
		return Info{}, corrupt("holds no audio")
	}
	info.DurationS = w.held
	if w.claimed != w.held && info.Method == "walked" {
		info.ClaimedS = &w.claimed
	}
	return info, nil
}

// add counts one link and gives the next, nil at the end.
func (w *oggWalk) add(l *oggLink) (next *oggLink, err error) {
	position := w.follow(l)
	next, err = w.nextLink()
	if err != nil || l.audio == nil {
		return next, err
	}
	cut := int64(0)
	if next == nil && w.pages < maxWalked {
		if last := l.searchTail(w.s); !last.lost && !last.foreign {
			position, cut = last.granule, last.claimed
		}
	}
	held, claimed, err := l.length(w.s, position, cut)
	if err != nil {
		return nil, err
	}
	if claimed == 0 {
		claimed = held
	}
	rate := float64(l.audio.info.SampleRate)
	w.held, w.claimed, w.links = w.held+float64(held)/rate, w.claimed+float64(claimed)/rate, w.links+1
	return next, nil
}

// follow goes to the end of a link and gives the position of the audio there.
func (w *oggWalk) follow(l *oggLink) int64 {
	var last, before oggPage
	for ; w.pages < maxWalked; w.pages++ {
		p, ok := w.s.oggPage(w.off)
		if !ok || p.next() > w.s.size {
			if !w.skip() {
				break
			}
			continue
		}
		if p.flags&flagBOS != 0 {
			break
		}
		if l.audio != nil && p.serial == l.audio.serial && p.granule >= 0 {
			before, last = last, p
		}
		w.off = p.next()
	}
	if last.head > 0 && !intact(w.s.at(last.off, int(last.len()))) {
		last = before
	}
	return last.granule
}

// skip goes on to the next whole page behind other matter; false if there is none within reach.
func (w *oggWalk) skip() bool {
	for off := w.off + 1; off < w.s.size && w.jumped < maxSkipped; {
		b := w.s.at(off, skipPiece)
		w.jumped += int64(len(b)) + 1
		i := bytes.Index(b, []byte("OggS"))
		if i < 0 {
			off += max(1, int64(len(b))-3)
			continue
		}
		off += int64(i)
		if p, ok := w.s.oggPage(off); ok && p.next() <= w.s.size {
			if intact(w.s.at(off, int(p.len()))) {
				w.off = off
				return true
			}
		}
		off++
	}
	return false
}

// nextLink reads the link that starts where the walk stands; nil at the end of the file.
func (w *oggWalk) nextLink() (*oggLink, error) {
	p, ok := w.s.oggPage(w.off)
	if !ok || p.next() > w.s.size || p.flags&flagBOS == 0 || w.pages >= maxWalked {
		return nil, nil
	}
	l, err := oggLinkAt(w.s, w.off)
	if err != nil || l.streams == 0 {
		return nil, err
	}
	w.off, w.pages = l.body, w.pages+int64(l.streams)
	if l.audio == nil {
		return l, nil
	}
	return l, l.begin(w.s)
}
