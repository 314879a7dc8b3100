// Package flac measures native FLAC files, and reads the headers of FLAC that other containers
// carry.
package flac

import (
	"encoding/binary"

	"github.com/mewkiz/flac/meta"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

var be = binary.BigEndian

const (
	MagicLen          = 4
	streamInfoLen     = 34 // bytes of a STREAMINFO block after its 4-byte header
	maxMetadataBlocks = 1024
	// bytes of the first frame that are read: for the digest, many more than its header
	startLen = 1 << 10
)

// Parse takes rate, channels and length from STREAMINFO, the block that every FLAC file starts
// with, and checks the length against the last frame: a cut file still claims its whole length, and
// an encoder that writes to a pipe claims none. Source: RFC 9639.
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
	if err := f.readFirstFrame(s.Alone(start, startLen)); err != nil {
		return media.Info{}, err
	}
	claimed := int64(si.NSamples)
	end, ok := f.endSample()
	if !ok {
		return media.Info{}, media.Corrupt("holds no playable frame in its last %d bytes", media.MaxRead)
	}
	info, samples := InfoOf(si), max(0, end-f.first)
	info.Method = "tail"
	if samples == claimed {
		info.Method = "header"
	}
	return media.Finish(info, samples, claimed)
}

// InfoOf returns what a stream info contains, without duration and method.
func InfoOf(si *meta.StreamInfo) media.Info {
	return media.Info{SampleRate: int(si.SampleRate), Channels: int(si.NChannels),
		Bits: int(si.BitsPerSample), Codec: "flac"}
}

// ParseStreamInfo parses a metadata block, header included, that must be STREAMINFO.
func ParseStreamInfo(b []byte) (*meta.StreamInfo, error) {
	if len(b) < 4+streamInfoLen {
		return nil, media.Corrupt("ends inside its header")
	}
	if kind, n := meta.Type(b[0]&0x7f), be.Uint32(b)&0xffffff; kind != meta.TypeStreamInfo ||
		n != streamInfoLen {
		return nil, media.Corrupt("starts with a %s block of %d bytes instead of its stream info",
			kind, n)
	}
	b = b[4:]
	packed := be.Uint64(b[10:]) // 20 bits of rate, 3 of channels, 5 of bits, 36 of samples
	si := &meta.StreamInfo{
		BlockSizeMin: be.Uint16(b), BlockSizeMax: be.Uint16(b[2:]),
		FrameSizeMin: be.Uint32(b[3:]) & 0xffffff, FrameSizeMax: be.Uint32(b[6:]) & 0xffffff,
		SampleRate: uint32(packed >> 44), NChannels: uint8(packed>>41&7) + 1,
		BitsPerSample: uint8(packed>>36&31) + 1, NSamples: packed & (1<<36 - 1),
		MD5sum: [16]byte(b[18:]),
	}
	switch {
	case si.BlockSizeMin < 16 || si.BlockSizeMax < 16:
		return nil, media.Corrupt("has a broken stream info with blocks of %d to %d samples",
			si.BlockSizeMin, si.BlockSizeMax)
	case si.SampleRate == 0:
		return nil, media.Corrupt("has a sample rate of 0 Hz")
	}
	return si, nil
}

// flacAudio hops over the metadata blocks to the first frame.
func flacAudio(s *media.File, base int64) (int64, error) {
	off := base + MagicLen
	for range maxMetadataBlocks {
		h := s.At(off, 4)
		if len(h) < 4 {
			break
		}
		x := be.Uint32(h)
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
