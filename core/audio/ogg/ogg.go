// Package ogg measures Ogg files with Vorbis, Opus, FLAC or Speex inside, chained ones too.
package ogg

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

var le = binary.LittleEndian

const (
	pageHead      = 27               // bytes before the lacing values
	pageMax       = 27 + 255*(1+255) // the longest page
	flagContinued = 0x01             // the first packet of the page began on an earlier one
	flagBOS       = 0x02             // first page of a stream
	flagEOS       = 0x04             // last page of a stream
	noPosition    = -1               // granule of a page on which no packet ends
)

// page is the header of one page. Source: RFC 3533.
type page struct {
	off   int64
	flags byte
	// samples per channel up to the end of the last packet that ends here, for audio; -1 when none
	// ends here
	granule int64
	serial  uint32
	number  uint32
	packets int   // that end here
	head    int64 // bytes of the header with its lacing values
	body    int64
}

func (p page) next() int64 { return p.off + p.head + p.body }
func (p page) len() int64  { return p.head + p.body }

// pageAt parses b, the bytes from off on, as a page header.
func pageAt(b []byte, off int64) (page, bool) {
	if len(b) < pageHead || string(b[:4]) != "OggS" || b[4] != 0 {
		return page{}, false
	}
	n := int(b[26])
	if len(b) < pageHead+n {
		return page{}, false
	}
	p := page{
		off: off, flags: b[5], granule: int64(le.Uint64(b[6:])), serial: le.Uint32(b[14:]),
		number: le.Uint32(b[18:]),
		head:   int64(pageHead + n),
	}
	for _, lace := range b[pageHead : pageHead+n] {
		p.body += int64(lace)
		if lace < 255 {
			p.packets++
		}
	}
	return p, true
}

func readPage(s *media.File, off int64) (page, bool) { return pageAt(s.At(off, pageHead+255), off) }

// intact reports whether b, a whole page, has the checksum that it names. Decoders drop a page
// without.
func intact(b []byte) bool { return len(b) >= pageHead && checksum(b) == le.Uint32(b[22:]) }

// checksum is that of a whole page. Its polynomial, 0x04c11db7, is that of crc32 with every bit
// order turned round, so that turned bytes go through the processor's own instructions. Source: RFC
// 3533, section 6.
func checksum(b []byte) uint32 {
	turned := turnedBytes.Get().(*[1 << 10]byte)
	defer turnedBytes.Put(turned)
	sum := uint32(0xffffffff) // of no bytes, in the way crc32 keeps it
	for first := true; len(b) > 0; first = false {
		n := copy(turned[:], b)
		if first {
			clear(turned[22:26]) // the checksum's own place counts as empty
		}
		turn(turned[:(n+7)&^7])
		sum = crc32.Update(sum, crc32.IEEETable, turned[:n])
		b = b[n:]
	}
	return bits.Reverse32(^sum)
}

// turn turns the order of the bits of every byte round.
func turn(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		x := le.Uint64(b)
		x = x>>1&0x5555555555555555 | x&0x5555555555555555<<1
		x = x>>2&0x3333333333333333 | x&0x3333333333333333<<2
		x = x>>4&0x0f0f0f0f0f0f0f0f | x&0x0f0f0f0f0f0f0f0f<<4
		le.PutUint64(b, x)
	}
}

// turnedBytes keeps scratch buffers, which would else be allocated for every page.
var turnedBytes = sync.Pool{New: func() any { return new([1 << 10]byte) }}

// Parse reads the streams that start the file and takes the length of the first audio among them
// from its last page. Only a file of several streams one after another is walked page by page.
func Parse(s *media.File, base int64) (media.Info, error) {
	link, err := linkAt(s, base)
	switch {
	case err != nil:
		return media.Info{}, err
	case link.streams == 0:
		if _, ok := readPage(s, base); ok {
			return media.Info{},
				media.Corrupt("starts in the middle of an Ogg stream, whose header is missing")
		}
		return media.Info{}, media.Corrupt("ends inside its first Ogg page")
	case link.audio == nil:
		return media.Info{}, media.Unsupported("is an Ogg file without a supported audio stream")
	}
	if err := link.begin(s); err != nil {
		return media.Info{}, err
	}
	last := link.searchTail(s)
	if last.lost || last.foreign || s.Size <= media.HeadLen || link.repeats(last) {
		return walkLinks(s, base, link, last)
	}
	return link.finish(s, last)
}

// finish sums up a file of one link. The method is "header" where the stream's own header has the
// length and the last page agrees.
func (l *link) finish(s *media.File, last lastPage) (media.Info, error) {
	samples, claimed, err := l.length(s, last)
	if err != nil {
		return media.Info{}, err
	}
	info := l.audio.info
	info.Method = "tail"
	if l.audio.claimed == samples {
		info.Method = "header"
	}
	return media.Finish(info, samples, claimed)
}

// length returns the samples from the start of the stream to its last page, and those that its
// header or a cut last page claims, 0 when nothing does.
func (l *link) length(s *media.File, last lastPage) (samples, claimed int64, err error) {
	a := l.audio
	front := l.start + a.skip
	samples = max(0, last.granule-front)
	if samples/a.maxSamples > s.Size {
		return 0, 0, media.Corrupt("ends at sample %d, more than %d bytes can hold", last.granule,
			s.Size)
	}
	claimed = a.claimed
	if last.claimed != 0 {
		claimed = max(claimed, last.claimed-front)
	}
	return samples, claimed, nil
}
