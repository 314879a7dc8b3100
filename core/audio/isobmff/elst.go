package isobmff

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// The encoder's priming and padding do not play: an edit list (elst box) leaves them out, or the
// tag that iTunes writes instead.

const maxEdits = 1024

// edit is a stretch of the media that plays, in ticks of the track's clock.
type edit struct{ start, end int64 }

// parseEdits reads an edit list (ISO/IEC 14496-12, 8.6.6). Its durations are in ticks of the
// movie's clock and its starts in ticks of the track's: movie and scale are their ticks per second.
// length is that of the media in ticks of the track, 0 when unknown.
func (w boxReader) parseEdits(list box, movie, scale, length int64) (edits []edit) {
	version, _, h := w.full(list, 4)
	width := int64(12)
	if version == 1 {
		width = 20
	}
	if len(h) < 4 || movie <= 0 {
		return nil
	}
	n := min(int64(be.Uint32(h)), (list.size()-8)/width, maxEdits)
	for i := range n {
		e := w.At(list.body+8+i*width, int(width))
		if int64(len(e)) < width {
			break
		}
		duration, start := uint64(be.Uint32(e)), int64(int32(be.Uint32(e[4:])))
		if version == 1 {
			duration, start = be.Uint64(e), int64(be.Uint64(e[8:]))
		}
		edits = append(edits, newEdit(start, float64(duration)*float64(scale)/float64(movie),
			scale/movie+1, length))
	}
	return edits
}

// newEdit returns an edit of so many ticks from start; 0 ticks are all to the end of the media. An
// end that differs from the media's by no more than a tick of the movie's clock is the media's. An
// empty edit (start -1) only delays what follows, and decoders make no samples of it. It counts as
// an edit of no ticks, as a list of empty edits alone plays nothing.
func newEdit(start int64, ticks float64, movieTick, length int64) edit {
	if start < 0 || start > media.MaxTicks {
		return edit{}
	}
	end := int64(media.MaxTicks)
	if ticks > 0 && ticks < media.MaxTicks/2 {
		end = start + int64(ticks+0.5)
	}
	if length > 0 && end >= length-movieTick && end <= length+movieTick {
		end = length
	}
	return edit{start, end}
}

// play returns how many of the first ticks of the media play; all of them without an edit list.
func (t *track) play(ticks int64) (sum int64) {
	if len(t.edits) == 0 {
		return ticks
	}
	for _, e := range t.edits {
		sum += max(0, min(e.end, ticks)-e.start)
	}
	return sum
}

// gapless reads the iTunSMPB tag, which iTunes and others write where they write no edit list.
// length is that of the media in ticks.
func (w boxReader) gapless(moov box, length int64) (edit, bool) {
	meta, ok := w.path(moov, "udta", "meta")
	if !ok {
		return edit{}, false
	}
	meta.body += 4 // version and flags
	list, _ := w.find(meta, "ilst")
	for item := range w.boxes(list.body, list.end) {
		if !item.is("----") {
			continue
		}
		name, _ := w.find(item, "name")
		if _, _, h := w.full(name, 8); string(h) != "iTunSMPB" {
			continue
		}
		data, _ := w.find(item, "data")
		if _, _, h := w.full(data, 128); len(h) > 4 { // a locale, then the text
			return gaplessEdit(string(h[4:]), length)
		}
	}
	return edit{}, false
}

// gaplessEdit reads the text of an iTunSMPB tag, such as " 00000000 00000840 000001CA
// 00000000003F31F6 ...": hexadecimal numbers of samples, first a 0, then priming, padding and
// length. Apple has published no specification of it.
func gaplessEdit(text string, length int64) (edit, bool) {
	fields := strings.Fields(text)
	if len(fields) < 4 {
		return edit{}, false
	}
	var numbers [3]int64
	for i := range numbers {
		x, err := strconv.ParseInt(fields[i+1], 16, 64)
		if err != nil || x < 0 || x > length {
			return edit{}, false
		}
		numbers[i] = x
	}
	start, end := numbers[0], numbers[0]+numbers[2]
	return edit{start, end}, end > start && end <= length
}
