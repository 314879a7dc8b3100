// Package riff measures files made of chunks: RIFF, RIFX and RF64 (WAV), Sony Wave64, AIFF and Core
// Audio.
package riff

import (
	"encoding/binary"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/audio/pcm"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// chunkStyle is how a family of formats frames its chunks: an id, a size, a body.
type chunkStyle struct {
	idLen   int64
	wide    bool // sizes have 64 bits
	order   binary.ByteOrder
	pad     int64 // chunks start at multiples of this after the previous one
	counted bool  // the size counts the head too
}

var (
	riffChunks = chunkStyle{idLen: 4, order: binary.LittleEndian, pad: 2}
	rifxChunks = chunkStyle{idLen: 4, order: binary.BigEndian, pad: 2}
	w64Chunks  = chunkStyle{idLen: 16, order: binary.LittleEndian, pad: 8, wide: true,
		counted: true}
	cafChunks = chunkStyle{idLen: 4, order: binary.BigEndian, pad: 1, wide: true}
)

const (
	maxChunks = 1024 // a file with more is not a sound file
	chunkPeek = 72   // enough for the bodies that are looked at
	// openSize is the size of a chunk whose writer could not seek back to fill it in: it claims
	// nothing.
	openSize = -1
)

// chunk is the head of one, and the first bytes of its body, valid until the next read.
type chunk struct {
	id   [4]byte // the first bytes of it
	body int64   // where its body starts; 0 only for no chunk
	size int64   // bytes of the body, as claimed; openSize
	peek []byte
}

// read reads the head of the chunk at off. ok is false where the file ends.
func (st *chunkStyle) read(s *media.File, off int64) (c chunk, ok bool) {
	head := st.headLen()
	b := s.At(off, int(head)+chunkPeek)
	if int64(len(b)) < head {
		return chunk{}, false
	}
	c = chunk{id: [4]byte(b), body: off + head, size: st.size(b[st.idLen:]), peek: b[head:]}
	if st.counted && c.size != openSize {
		c.size = max(0, c.size-head)
	}
	if c.size != openSize {
		c.peek = c.peek[:min(c.size, int64(len(c.peek)))]
	}
	return c, true
}

func (st *chunkStyle) headLen() int64 {
	if st.wide {
		return st.idLen + 8
	}
	return st.idLen + 4
}

func (st *chunkStyle) size(b []byte) int64 {
	if !st.wide {
		return int64(st.order.Uint32(b))
	}
	if n := st.order.Uint64(b); n < pcm.MaxClaim {
		return int64(n)
	}
	return openSize
}

// next returns the offset of the chunk after c, or one past the end of the file.
func (st *chunkStyle) next(s *media.File, c chunk) int64 {
	end := c.body + c.size
	if c.size == openSize || end >= s.Size {
		return s.Size
	}
	over := c.size % st.pad // heads are whole multiples of it
	if over == 0 || st.unpadded(s, end) {
		return end
	}
	return end + st.pad - over
}

// unpadded reports whether a writer forgot the padding byte: a known chunk starts right at off,
// where the padding should be.
func (st *chunkStyle) unpadded(s *media.File, off int64) bool {
	b := s.At(off, 4)
	return st.pad == 2 && len(b) == 4 && commonChunks[string(b)]
}

var commonChunks = map[string]bool{
	"fmt ": true, "data": true, "fact": true, "LIST": true, "JUNK": true, "bext": true,
	"cue ": true, "id3 ": true, "PEAK": true,
	"COMM": true, "SSND": true, "NAME": true, "AUTH": true, "ANNO": true, "MARK": true,
	"INST": true, "COMT": true, "FVER": true,
}

// reachEnd reports whether only whole chunks follow off up to the end of the file: then a data
// chunk of size 0 is truly empty.
func (st *chunkStyle) reachEnd(s *media.File, off int64) bool {
	for range maxChunks {
		if off >= s.Size {
			return true
		}
		c, ok := st.read(s, off)
		if !ok || !printable(c.id) || c.size == openSize || c.body+c.size > s.Size {
			return false
		}
		off = st.next(s, c)
	}
	return false
}

func printable(id [4]byte) bool {
	return !slices.ContainsFunc(id[:], func(b byte) bool { return b < ' ' || b > '~' })
}

// isOpen reports whether a chunk has a 32-bit size that means nothing: there is less, or more that
// is no chunk.
func (st *chunkStyle) isOpen(s *media.File, c chunk) bool {
	return pcm.IsOpen32(c.size) && (c.body+c.size > s.Size || !st.reachEnd(s, st.next(s, c)))
}
