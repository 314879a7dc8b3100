package audio

import "bytes"

const (
	pageHead = 27               // bytes before the lacing values
	pageMax  = 27 + 255*(1+255) // the longest page
	flagBOS  = 0x02             // first page of a stream
	maxBOS   = 64               // streams side by side in one file
)

// oggPage is the header of one page. Source: RFC 3533.
type oggPage struct {
	off     int64
	flags   byte
	granule int64 // samples per channel up to the end of this page, for Vorbis; -1 when no packet ends here
	serial  uint32
	packets int   // that end here
	head    int64 // bytes of the header with its lacing values
	body    int64
}

func (p oggPage) next() int64 { return p.off + p.head + p.body }

// oggPageAt parses b, the bytes from off on, as a page header.
func oggPageAt(b []byte, off int64) (oggPage, bool) {
	if len(b) < pageHead || string(b[:4]) != "OggS" || b[4] != 0 {
		return oggPage{}, false
	}
	n := int(b[26])
	if len(b) < pageHead+n {
		return oggPage{}, false
	}
	p := oggPage{off: off, flags: b[5], granule: int64(le.Uint64(b[6:])), serial: le.Uint32(b[14:]), head: int64(pageHead + n)}
	for _, lace := range b[pageHead : pageHead+n] {
		p.body += int64(lace)
		if lace < 255 {
			p.packets++
		}
	}
	return p, true
}

func (s *source) oggPage(off int64) (oggPage, bool) { return oggPageAt(s.at(off, pageHead+255), off) }

// oggCodecs are the first bytes of the first packet of streams that are not read yet.
var oggCodecs = []struct{ magic, name string }{
	{"OpusHead", "Ogg Opus"}, {"\x7fFLAC", "FLAC inside Ogg"}, {"Speex   ", "Ogg Speex"},
}

// parseOgg finds the Vorbis stream among those that start the file.
func parseOgg(s *source, base int64) (Info, error) {
	var v *vorbis
	var other string
	serials := make(map[uint32]bool)
	off := base
	for range maxBOS {
		p, ok := s.oggPage(off)
		if !ok || p.flags&flagBOS == 0 {
			break
		}
		serials[p.serial] = true
		body := s.at(off+p.head, int(min(p.body, 64)))
		if bytes.HasPrefix(body, vorbisMagic) && v == nil {
			var err error
			if v, err = parseVorbisHead(body); err != nil {
				return Info{}, err
			}
			v.serial = p.serial
		}
		for _, c := range oggCodecs {
			if bytes.HasPrefix(body, []byte(c.magic)) {
				other = c.name
			}
		}
		off = p.next()
	}
	switch {
	case v == nil && other != "":
		return Info{}, unsupported("is %s, which is not read yet", other)
	case v == nil && len(serials) == 0:
		return Info{}, corrupt("ends inside its first Ogg page")
	case v == nil:
		return Info{}, unsupported("is an Ogg file without audio that is read")
	}
	return v.length(s, base, off, serials)
}
