package audio

import (
	"bytes"
	"encoding/binary"

	"github.com/mewkiz/flac/meta"
)

const (
	flacMagicLen      = 4
	streamInfoLen     = 34 // bytes of a STREAMINFO block behind its 4-byte header
	maxMetadataBlocks = 1024
	// No FLAC frame is shorter than this (header 6, subframe 2, footer 2 bytes) or holds more samples than that.
	minFrameLen, maxFrameSamples = 10, 65535
	// Frame headers whose checksum is tried, from the end: the first is nearly always right, and hostile files have many.
	maxTried = 32
)

// parseFLAC takes rate, channels and length from STREAMINFO, the block that every FLAC file starts with, and checks the
// length against the last frame: a cut file still claims its whole length, and an encoder that writes to a pipe claims none.
// Source: RFC 9639.
func parseFLAC(s *source, base int64) (Info, error) {
	si, err := streamInfo(s.at(base+flacMagicLen, 4+streamInfoLen))
	if err != nil {
		return Info{}, err
	}
	start, err := flacAudio(s, base)
	if err != nil {
		return Info{}, err
	}
	info := flacInfo(si)
	info.Method = "header"
	claimed := int64(si.NSamples)
	if claimed/maxFrameSamples > (s.size-start)/minFrameLen {
		return Info{}, corrupt("claims %d samples, more than %d bytes can hold", claimed, s.size-start)
	}
	held, seen := flacHeld(s, start, si)
	switch {
	case seen && held != claimed:
		info.Method = "tail"
	case !seen && claimed == 0:
		return Info{}, unsupported("does not say its length in the header, nor does its end")
	case !seen:
		held = claimed
	}
	return finish(info, held, claimed)
}

func flacInfo(si *meta.StreamInfo) Info {
	return Info{SampleRate: int(si.SampleRate), Channels: int(si.NChannels), Bits: int(si.BitsPerSample), Codec: "flac"}
}

// streamInfo parses a metadata block, header included, that must be STREAMINFO.
func streamInfo(b []byte) (*meta.StreamInfo, error) {
	if len(b) < 4+streamInfoLen {
		return nil, corrupt("ends inside its header")
	}
	block, err := meta.New(bytes.NewReader(b))
	if err != nil {
		return nil, corrupt("has a broken metadata block: %w", err)
	}
	if block.Type != meta.TypeStreamInfo || block.Length != streamInfoLen {
		return nil, corrupt("starts with a %s block of %d bytes instead of its stream info", block.Type, block.Length)
	}
	if err := block.Parse(); err != nil {
		return nil, corrupt("has a broken stream info: %w", err)
	}
	return block.Body.(*meta.StreamInfo), nil
}

// flacAudio hops over the metadata blocks to the first frame.
func flacAudio(s *source, base int64) (int64, error) {
	off := base + flacMagicLen
	for range maxMetadataBlocks {
		h := s.at(off, 4)
		if len(h) < 4 {
			break
		}
		x := binary.BigEndian.Uint32(h)
		off += 4 + int64(x&0xffffff)
		if x>>31 == 1 && off < s.size {
			return off, nil
		}
	}
	if off >= s.size {
		return 0, corrupt("ends inside its metadata and holds no audio")
	}
	return 0, corrupt("has more than %d metadata blocks", maxMetadataBlocks)
}

// flacHeld gives the samples up to the end of the last whole frame, by looking for frame headers backwards from the end of
// the file. seen is false when there is other matter at the end for as far as is looked.
func flacHeld(s *source, start int64, si *meta.StreamInfo) (held int64, seen bool) {
	window := int64(16 << 10)
	if si.FrameSizeMax > 0 {
		window = int64(si.FrameSizeMax) + 256 // and a tag
	}
	for {
		off := max(start, s.size-min(window, maxRead))
		tail := s.at(off, int(s.size-off))
		if held, seen = lastFrame(tail, si); seen {
			return held, true
		}
		if off == start {
			return 0, true // all was looked at: no frame
		}
		if window >= maxRead {
			return 0, false
		}
		window *= 4
	}
}

// lastFrame finds the last frame in the tail of a file. A frame counts when its checksum is right; a last frame that is cut
// does not, as no decoder plays it.
func lastFrame(tail []byte, si *meta.StreamInfo) (held int64, found bool) {
	total := int64(si.NSamples)
	audio := tail[:len(tail)-tagLen(tail)]
	for i, tried := len(audio), 0; tried < maxTried; {
		i = bytes.LastIndexByte(audio[:i], 0xff)
		if i < 0 {
			break
		}
		f, ok := parseFrameHeader(audio[i:], si)
		if !ok || total > 0 && f.end() > total {
			continue
		}
		tried++
		if crc16(audio[i:]) == 0 || f.end() == total && wholeSomewhere(audio[i:]) {
			return f.end(), true
		}
		if !found { // cut, or not a frame at all: then a right one comes before it
			held, found = f.first, true
		}
	}
	return held, found
}

// tagLen is the length of the ID3v1 or APEv2 tag that some taggers append.
func tagLen(tail []byte) int {
	n := len(tail)
	if n >= 128 && string(tail[n-128:n-125]) == "TAG" {
		return 128
	}
	if n >= 32 && string(tail[n-32:n-24]) == "APETAGEX" {
		size := int64(le.Uint32(tail[n-20:])) // of items and footer
		if tail[n-9]&0x80 != 0 {              // and of a header
			size += 32
		}
		return int(min(size, int64(n)))
	}
	return 0
}
