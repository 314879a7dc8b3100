package ogg

import (
	"github.com/mewkiz/flac/meta"

	"github.com/asrconfig/asrconfig-go/core/audio/flac"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	// magic, version and number of header packets, in front of the native magic
	flacMappingHead = 9
	flacMappingLen  = 51 // all of the first packet
)

// flacMapping is the stream info: packets are frames of native FLAC.
type flacMapping struct{ *meta.StreamInfo }

// parseFLACHead reads the first packet. Source: RFC 9639, section 10.1.
func parseFLACHead(b []byte) (*stream, error) {
	if len(b) < flacMappingLen {
		return nil, media.Corrupt("ends inside its FLAC header")
	}
	if b[5] != 1 {
		return nil, media.Unsupported("is FLAC inside Ogg of version %d instead of 1", b[5])
	}
	si, err := flac.ParseStreamInfo(b[flacMappingHead+flac.MagicLen : flacMappingLen])
	if err != nil {
		return nil, err
	}
	headers := int(b[7])<<8 + int(b[8])
	if headers > 0 {
		headers++ // this one is not among them
	}
	return &stream{mapping: flacMapping{si}, info: flac.InfoOf(si), headers: headers,
		claimed: int64(si.NSamples)}, nil
}

// parseOldFLAC: before 2004, frames were put into Ogg without a mapping.
func parseOldFLAC([]byte) (*stream, error) {
	return nil, media.Unsupported(
		"is FLAC inside Ogg of before version 1.1.1, which is not supported")
}

func (flacMapping) maxSamples() int64              { return flac.MaxFrameSamples }
func (flacMapping) setup(*media.File, int64) error { return nil }

// plain: the frames of a stream are nearly always of one length.
func (f flacMapping) plain(p page, packet []byte) bool {
	return p.granule == int64(p.packets)*f.samples(packet)
}

func (f flacMapping) samples(packet []byte) int64 {
	frame, _ := flac.ParseFrameHeader(packet, f.StreamInfo)
	return frame.Samples
}
