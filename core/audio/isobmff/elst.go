package isobmff

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// Which part of a track plays: an edit list (elst box), or the tag that iTunes writes instead,
// leaves out the encoder's priming and padding.

const maxEdits = 1024

// edit is a stretch of the media that plays, in ticks of the track's clock.
type edit struct{ start, end int64 }

// parseEdits reads an edit list. Durations in it are in ticks of the movie's clock, starts in those
// of the track's; movie and scale are their ticks per second. all is the length of the media in
// ticks of the track, 0 when unknown: an end that differs from it by less than the movie's clock
// resolves is set to it. An empty edit (start -1) delays the rest and plays nothing, as decoders
// make no samples of it; it is kept, as a list of nothing else plays nothing. Source: ISO/IEC
// 14496-12, 8.6.6.
func (w boxReader) parseEdits(list box, movie, scale, all int64) (edits []edit) {
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
		if start < 0 || start > media.MaxTicks {
			edits = append(edits, edit{})
			continue
		}
		end := int64(media.MaxTicks) // a duration of 0 means all
		if length := float64(duration) * float64(scale) / float64(movie); duration > 0 &&
			length < media.MaxTicks/2 {
			end = start + int64(length+0.5)
		}
		if tick := scale/movie + 1; all > 0 && end >= all-tick && end <= all+tick {
			end = all
		}
		edits = append(edits, edit{start, end})
	}
	return edits
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

// edited reports whether the edit list changes the length.
func (t *track) edited(all int64) bool { return len(t.edits) > 0 && t.play(all) != all }

// gapless looks for the iTunSMPB tag, which iTunes and others write where they write no edit list.
// all is the length of the media in ticks.
func (w boxReader) gapless(moov box, all int64) (edit, bool) {
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
		if _, _, h := w.full(data, 128); len(h) > 4 {
			return gaplessTag(string(h[4:]), all)
		}
	}
	return edit{}, false
}

// gaplessTag reads the text of an iTunSMPB tag, such as " 00000000 00000840 000001CA
// 00000000003F31F6 ...": 0, then priming, padding and length in samples, hexadecimal. Apple has
// published no specification of it.
func gaplessTag(text string, all int64) (edit, bool) {
	fields := strings.Fields(text)
	if len(fields) < 4 {
		return edit{}, false
	}
	var numbers [3]int64
	for i := range numbers {
		x, err := strconv.ParseInt(fields[i+1], 16, 64)
		if err != nil || x < 0 || x > all {
			return edit{}, false
		}
		numbers[i] = x
	}
	start, end := numbers[0], numbers[0]+numbers[2]
	return edit{start, end}, end > start && end <= all
}
