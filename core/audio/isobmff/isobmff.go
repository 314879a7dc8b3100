// Package isobmff measures MP4, M4A, 3GP and QuickTime files: the ISO base media file format, made
// of boxes.
package isobmff

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// Is: most files start with ftyp; QuickTime files may start with any other box of the top level.
func Is(h []byte) bool {
	if len(h) < boxHead {
		return false
	}
	switch string(h[4:8]) {
	case "ftyp", "moov", "mdat", "wide", "free", "skip", "pnot", "styp", "sidx", "moof":
		return true
	}
	return false
}

// movie is what is known of a file while its top level is walked.
type movie struct {
	w    boxReader
	moov bool
	// ticks per second of the movie's clock, in which edits are timed; 0 when not known
	timescale  int64
	track      *track
	fragmented bool
	complete   bool // the media data that the index speaks of is all there
	data       []box
	fragments
}

// Parse takes the duration of the first audio track from its sample table, cut by its edit list, or
// adds up its fragments. Source: ISO/IEC 14496-12; Apple, QuickTime File Format.
func Parse(s *media.File, base int64) (media.Info, error) {
	m := &movie{w: boxReader{media.NewWindow(s)}}
	info, err := m.parse(base)
	if m.w.Steps < 0 { // whatever was made of a part
		return media.Info{}, m.w.Spent()
	}
	return info, err
}

func (m *movie) parse(base int64) (media.Info, error) {
	for b := range m.w.boxes(base, m.w.File.Size) {
		if done, err := m.top(b); err != nil {
			return media.Info{}, err
		} else if done {
			break
		}
	}
	switch {
	case !m.moov && m.starts > 0:
		return media.Info{}, media.Corrupt(
			"is a piece of a fragmented file without its header (moov box)")
	case !m.moov:
		return media.Info{}, media.Corrupt(
			"has no moov box, its index: the recording or the transfer was cut short")
	case m.track == nil:
		return media.Info{}, media.Corrupt("holds no audio track")
	case m.fragmented:
		return m.fragmentLength()
	}
	return m.tableLength()
}

// top reads one box of the top level. done means that nothing after it matters.
func (m *movie) top(b box) (done bool, err error) {
	switch string(b.kind[:]) {
	case "moov":
		if m.moov {
			return false, nil
		}
		if b.cut {
			return false, media.Corrupt("ends inside its moov box, its index")
		}
		err = m.index(b)
	case "mdat":
		if len(m.data) < 64 {
			m.data = append(m.data, b)
		}
	case "moof":
		m.starts++
		if m.fragmented && m.track != nil {
			err = m.fragment(b)
		}
	case "sidx":
		m.sidx(b)
	}
	return m.moov && !m.fragmented && m.settled(), err
}

// index reads the moov box up to the end of the first audio track.
func (m *movie) index(moov box) error {
	m.moov = true
	for b := range m.w.boxes(moov.body, moov.end) {
		switch string(b.kind[:]) {
		case "cmov":
			return media.Unsupported("has a compressed index (cmov box), which is not supported")
		case "mvhd":
			m.timescale, _ = m.w.clock(b)
		case "trak":
			if m.track == nil {
				var err error
				if m.track, err = m.w.parseTrack(b); err != nil {
					return err
				}
			}
		case "mvex":
			m.fragmented = true
			m.extends(b)
		}
	}
	if m.track == nil {
		return nil
	}
	m.w.Step = media.HopLen
	return m.track.settle(m.w, moov, m.timescale)
}

// settled reports whether the media data that holds the last sample was seen.
func (m *movie) settled() bool {
	if m.track == nil {
		return true
	}
	for _, b := range m.data {
		if m.track.last >= b.body && m.track.last < b.end {
			m.complete = !b.cut && !b.open
			return true
		}
	}
	return false
}

// tableLength is the length of a file whose sample table is all in its index.
func (m *movie) tableLength() (media.Info, error) {
	present, all, err := m.tableTicks()
	if err != nil {
		return media.Info{}, err
	}
	if present < all {
		m.track.info.Method = "walked"
	}
	return m.track.finish(present, all, m.track.header)
}

// tableTicks returns how long the samples of the table play: those that the file holds, and all.
func (m *movie) tableTicks() (present, all int64, err error) {
	t := m.track
	if all, err = t.ticks(m.w, t.samples); err != nil {
		return 0, 0, err
	}
	if u := t.unit(); m.complete && t.samples/max(1, u.samples) <= m.w.File.Size/max(1, u.bytes) {
		return all, all, nil
	}
	n, err := t.heldSamples(m.w)
	if err != nil || n == t.samples {
		return all, all, err
	}
	present, err = t.ticks(m.w, n)
	return present, all, err
}
