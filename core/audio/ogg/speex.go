package ogg

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	speexHeadLen   = 80
	speexMaxFrame  = 2000 // samples; those of the widest band are 640
	speexMaxFrames = 100  // in a packet
	speexMaxExtra  = 100  // more header packets
)

// speex is the number of samples in each packet.
type speex int64

// parseSpeexHead reads the first packet. Positions do not count the encoder's look-ahead: the last
// one is the length of what was encoded. Source: the Speex manual, section 7.3 "Ogg file format".
func parseSpeexHead(b []byte) (*stream, error) {
	if len(b) < speexHeadLen {
		return nil, media.Corrupt("ends inside its Speex header")
	}
	field := func(offset int) int64 { return int64(int32(le.Uint32(b[offset:]))) }
	rate, channels, frame, frames, extra := field(36), field(48), field(56), field(64), field(68)
	switch {
	case rate <= 0:
		return nil, media.Corrupt("has a sample rate of %d Hz", rate)
	case channels < 1 || channels > 2:
		return nil, media.Corrupt("has %d channels, which Speex does not support", channels)
	case frame < 1 || frame > speexMaxFrame || frames < 0 || frames > speexMaxFrames || extra < 0 ||
		extra > speexMaxExtra:
		return nil, media.Corrupt(
			"has %d frames of %d samples in a packet and %d more headers, which Speex does not "+
				"support", frames, frame, extra)
	}
	info := media.Info{SampleRate: int(rate), Channels: int(channels), Codec: "speex"}
	return &stream{mapping: speex(frame * max(1, frames)), info: info, headers: 2 + int(extra),
		trims: true}, nil
}

func (x speex) maxSamples() int64              { return int64(x) }
func (x speex) setup(*media.File, int64) error { return nil }
func (x speex) samples([]byte) int64           { return int64(x) }

// plain: the encoder's look-ahead, less than a frame, is in no position.
func (x speex) plain(p page, _ []byte) bool {
	ahead := int64(p.packets)*int64(x) - p.granule
	return ahead >= 0 && ahead <= int64(x)
}
