// Package flac measures native FLAC files, and reads the headers of FLAC that other containers carry.
package flac

import (
	"bytes"
	"encoding/binary"

	"github.com/mewkiz/flac/meta"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

var le = binary.LittleEndian

const (
	MagicLen          = 4
	streamInfoLen     = 34 // bytes of a STREAMINFO block behind its 4-byte header
	maxMetadataBlocks = 1024
)

// Parse takes rate, channels and length from STREAMINFO, the block that every FLAC file starts with, and checks the
// length against the last frame: a cut file still claims its whole length, and an encoder that writes to a pipe claims none.
// Source: RFC 9639.
func Parse(s *media.File, base int64) (media.Info, error) {
	si, err := ParseStreamInfo(s.At(base+MagicLen, 4+streamInfoLen))
	if err != nil {
		return media.Info{}, err
	}
	start, err := flacAudio(s, base)
	if err != nil {
		return media.Info{}, err
	}
	f := flacStream{s: s, si: si, start: start, sync: "\xff"}
	if err := f.look(s.At(start, MaxFrameHead)); err != nil {
		return media.Info{}, err
	}
	claimed := int64(si.NSamples)
	end, seen := f.end()
	if !seen {
		return media.Info{}, media.Corrupt("holds no playable frame at its start or end")
	}
	info, held := InfoOf(si), max(0, end-f.first)
	info.Method = "tail"
	if held == claimed {
		info.Method = "header"
	}
	return media.Finish(info, held, claimed)
}

// InfoOf is what a stream info tells, all but the duration and the method.
func InfoOf(si *meta.StreamInfo) media.Info {
	return media.Info{SampleRate: int(si.SampleRate), Channels: int(si.NChannels), Bits: int(si.BitsPerSample), Codec: "flac"}
}

// ParseStreamInfo parses a metadata block, header included, that must be STREAMINFO.
func ParseStreamInfo(b []byte) (*meta.StreamInfo, error) {
	if len(b) < 4+streamInfoLen {
		return nil, media.Corrupt("ends inside its header")
	}
	block, err := meta.New(bytes.NewReader(b))
	if err != nil {
		return nil, media.Corrupt("has a broken metadata block: %w", err)
	}
	if block.Type != meta.TypeStreamInfo || block.Length != streamInfoLen {
		return nil, media.Corrupt("starts with a %s block of %d bytes instead of its stream info", block.Type, block.Length)
	}
	if err := block.Parse(); err != nil {
		return nil, media.Corrupt("has a broken stream info: %w", err)
	}
	return block.Body.(*meta.StreamInfo), nil
}

// flacAudio hops over the metadata blocks to the first frame.
func flacAudio(s *media.File, base int64) (int64, error) {
	off := base + MagicLen
	for range maxMetadataBlocks {
		h := s.At(off, 4)
		if len(h) < 4 {
			break
		}
		x := binary.BigEndian.Uint32(h)
		off += 4 + int64(x&0xffffff)
		if x>>31 == 1 && off < s.Size {
			return off, nil
		}
	}
	if off >= s.Size {
		return 0, media.Corrupt("ends inside its metadata and holds no audio")
	}
	return 0, media.Corrupt("has more than %d metadata blocks", maxMetadataBlocks)
}
