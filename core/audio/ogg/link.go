package ogg

import (
	"bytes"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/audio/flac"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	maxBOS       = 64  // streams side by side in one file
	maxHeadPages = 256 // pages of headers before the first sound: pictures of 16 MB
	headPeek     = 80  // bytes of a first packet that any codec needs
)

// stream is one audio stream, as described by its first packet.
type stream struct {
	mapping
	maxSamples int64 // no packet gives more
	serial     uint32
	info       media.Info // all but the duration
	headers    int        // packets before the first that holds sound, 0 if unknown
	skip       int64      // samples at the start that decoders drop
	trims      bool       // decoders drop samples before position 0, though of no more than one packet
	claimed    int64      // samples that the header claims; 0 when it does not
}

// mapping counts the samples that a decoder makes of packets.
type mapping interface {
	// plain reports, from the first page with sound and the first bytes of its first packet,
	// whether it starts at sample 0.
	plain(p page, packet []byte) bool
	// setup is called before samples, with the offset at which the last header packet ends.
	setup(s *media.File, end int64) error
	// samples returns the samples of a packet, from its first bytes. Packets come in order.
	samples(packet []byte) int64
}

// mappings are the first bytes of the first packet, and the parsers of that packet.
var mappings = []struct {
	magic string
	parse func(b []byte) (*stream, error)
}{
	{"\x01vorbis", parseVorbisHead}, {"OpusHead", parseOpusHead}, {"\x7fFLAC", parseFLACHead},
	{"Speex   ", parseSpeexHead},
}

// link is a group of streams that start together: a whole file, or one link of a chained file.
type link struct {
	audio   *stream // the first audio among them, nil if there is none
	serials [maxBOS]uint32
	streams int
	body    int64 // offset after the first pages of all streams
	first   page  // the first page with sound
	start   int64 // sample position at which the audio begins
}

func (l *link) has(serial uint32) bool {
	return slices.Contains(l.serials[:l.streams], serial)
}

// linkAt reads the first pages of all streams that start at off. An error is about an audio stream
// among them.
func linkAt(s *media.File, off int64) (*link, error) {
	l := &link{body: off}
	for range maxBOS {
		p, ok := readPage(s, l.body)
		if !ok || p.flags&flagBOS == 0 || l.has(p.serial) {
			break
		}
		l.serials[l.streams] = p.serial
		l.streams++
		if l.audio == nil {
			var err error
			if l.audio, err = parseHead(s.At(p.off+p.head,
				int(min(p.body, headPeek)))); err != nil {
				return l, err
			}
			if l.audio != nil {
				l.audio.serial = p.serial
			}
		}
		l.body = p.next()
	}
	return l, nil
}

func parseHead(packet []byte) (*stream, error) {
	for _, c := range mappings {
		if bytes.HasPrefix(packet, []byte(c.magic)) {
			return c.parse(packet)
		}
	}
	return nil, nil
}

// begin finds the first page with sound and the sample position at which the stream begins: 0,
// except in a piece cut from a longer stream that kept its positions, such as a radio recording.
// Such a page ends later than its packets reach.
func (l *link) begin(s *media.File) error {
	a := l.audio
	off, headers, end := l.body, a.headers-1, int64(0)
	for range maxHeadPages {
		p, ok := readPage(s, off)
		if !ok || p.next() > s.Size || p.flags&flagBOS != 0 {
			return nil
		}
		off = p.next()
		switch {
		case p.serial != a.serial:
		case headers < 0 && p.granule <= 0: // an unknown number of headers, which are at position 0
		case headers > 0 && p.packets <= headers:
			headers, end = headers-p.packets, p.next()
		default:
			l.first = p
			return l.findStart(s, max(0, headers), end)
		}
	}
	return nil
}

// findStart counts the samples up to the first page that has a position. headers packets are still
// to come before the sound.
func (l *link) findStart(s *media.File, headers int, end int64) error {
	a, p := l.audio, l.first
	if headers == 0 && p.granule >= 0 && p.flags&flagContinued == 0 &&
		a.plain(p, s.At(p.off+p.head, flac.MaxFrameHead)) {
		return nil
	}
	if err := a.setup(s, end); err != nil {
		if p.granule > int64(p.packets)*a.maxSamples {
			return err
		}
		return nil
	}
	samples, carried, last := int64(0), int64(0), int64(0)
	for range maxHeadPages {
		if p.serial == a.serial {
			page := s.At(p.off, int(p.len()))
			if int64(len(page)) < p.len() {
				return nil
			}
			p.split(page, func(packet []byte, begins, ends bool) {
				if begins && headers == 0 {
					carried = a.samples(packet)
				}
				if ends {
					samples, last, carried, headers = samples+carried, carried, 0, max(0, headers-1)
				}
			})
			if p.granule != noPosition {
				l.start = a.startBefore(p, samples, last)
				return nil
			}
		}
		var ok bool
		if p, ok = readPage(s, p.next()); !ok {
			return nil
		}
	}
	return nil
}

// startBefore returns the position at which samples before the end of page p begin; last of them
// are from its last packet. Copying a part of a file with FFmpeg leaves positions before 0, which
// libvorbis and FFmpeg play but for a packet, or all.
func (a *stream) startBefore(p page, samples, last int64) int64 {
	start := p.granule - samples
	switch {
	case start >= 0:
		return start
	case p.flags&flagEOS != 0: // cut at its end instead
		return 0
	case a.trims:
		return min(0, start+last)
	}
	return start
}

// split shows every packet of a whole page: its bytes there, and whether it begins and ends on the
// page.
func (p page) split(page []byte, show func(packet []byte, begins, ends bool)) {
	body := page[p.head:]
	begins, n := p.flags&flagContinued == 0, 0
	for i, lace := range page[pageHead:p.head] {
		n += int(lace)
		if ends := lace < 255; ends || int64(i) == p.head-pageHead-1 {
			show(body[:n], begins, ends)
			body, begins, n = body[n:], true, 0
		}
	}
}
