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
	f := flacStream{s: s, si: si, start: start, sync: "\xff"}
	if err := f.look(s.at(start, maxFrameHead)); err != nil {
		return Info{}, err
	}
	claimed := int64(si.NSamples)
	end, seen := f.end()
	if !seen {
		return Info{}, corrupt("holds no frame that can be played at its start or its end")
	}
	info, held := flacInfo(si), max(0, end-f.first)
	info.Method = "tail"
	if held == claimed {
		info.Method = "header"
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
