package audio

import "encoding/binary"

var le = binary.LittleEndian

// Sizes of a data chunk that writers put down when they cannot seek back: FFmpeg and RF64, sox and espeak-ng, libraries
// with signed sizes. They claim nothing.
var openSizes = map[int64]bool{0xffffffff: true, 0x7ffff000: true, 0x7fffffff: true, 0x80000000: true}

const (
	maxChunks   = 1024 // before data: more is no sound file
	chunkHead   = 8    // id and size
	chunkPeek   = chunkHead + 40
	unknownSize = -1
)

func isWAV(h []byte) bool {
	if len(h) < 12 || string(h[8:12]) != "WAVE" {
		return false
	}
	id := string(h[:4])
	return id == "RIFF" || id == "RF64" || id == "BW64"
}

// parseWAV walks the chunks of a RIFF, RF64 or BW64 file up to its data. The RIFF size is not used: writers get it wrong.
// Sources: Microsoft "Multiple Channel Audio Data and WAVE Files", EBU Tech 3306 (RF64), ITU-R BS.2088 (BW64).
func parseWAV(s *source, base int64) (Info, error) {
	var f *wavFormat
	fact, long := int64(0), int64(unknownSize)
	off := base + 12
	for range maxChunks {
		c := s.at(off, chunkPeek)
		if len(c) < chunkHead {
			return Info{}, corrupt("ends before its data chunk")
		}
		id, size, body := string(c[:4]), int64(le.Uint32(c[4:])), c[chunkHead:]
		body = body[:min(size, int64(len(body)))]
		switch id {
		case "fmt ":
			var err error
			if f, err = parseWAVFormat(body); err != nil {
				return Info{}, err
			}
		case "ds64":
			long = ds64DataSize(body)
		case "fact":
			if len(body) >= 4 {
				fact = int64(le.Uint32(body))
			}
		case "data":
			if f == nil {
				return Info{}, corrupt("has no fmt chunk before its data")
			}
			return wavLength(s, f, off+chunkHead, size, long, fact)
		}
		off += chunkHead + size + size&1
	}
	return Info{}, corrupt("has more than %d chunks before its data", maxChunks)
}

// ds64DataSize gives the 64-bit size of the data chunk, unknownSize where a writer left it open.
func ds64DataSize(body []byte) int64 {
	if len(body) < 16 {
		return unknownSize
	}
	n := le.Uint64(body[8:])
	if n == 0 || n >= 1<<62 {
		return unknownSize
	}
	return int64(n)
}

// wavLength settles how much audio lies at start: size is the data chunk's own, long that of ds64, fact the sample count.
func wavLength(s *source, f *wavFormat, start, size, long, fact int64) (Info, error) {
	rest := max(0, s.size-start)
	claim := size
	switch {
	case size == 0xffffffff && long != unknownSize:
		claim = long
	case openSizes[size] && size > rest:
		claim = unknownSize
	case size == 0 && !chunksReachEnd(s, start):
		claim = unknownSize // a recording that was never closed
	}
	held := rest
	if claim != unknownSize {
		held = min(rest, claim)
	}
	frames, claimed := f.frames(held), int64(0)
	if claim != unknownSize {
		claimed = f.frames(claim)
		if f.blockSamples > 0 && fact > 0 && fact < claimed { // the last block of a compressed file is rarely full
			claimed = fact
		}
		frames = min(frames, claimed)
	}
	info := Info{SampleRate: f.rate, Channels: f.channels, Bits: f.bits, Codec: f.codec, Method: "header"}
	if claim == unknownSize {
		info.Method = "tail"
	}
	return finish(info, frames, claimed)
}

// chunksReachEnd says whether only whole chunks follow: then a data chunk of size 0 is truly empty.
func chunksReachEnd(s *source, off int64) bool {
	for range maxChunks {
		if off >= s.size {
			return true
		}
		c := s.at(off, chunkHead)
		if len(c) < chunkHead {
			return false
		}
		for _, b := range c[:4] {
			if b < ' ' || b > '~' {
				return false
			}
		}
		size := int64(le.Uint32(c[4:]))
		if off+chunkHead+size > s.size {
			return false
		}
		off += chunkHead + size + size&1
	}
	return false
}
