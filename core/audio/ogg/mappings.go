package ogg

import (
	"github.com/mewkiz/flac/meta"

	"github.com/asrconfig/asrconfig-go/core/audio/codec"
	"github.com/asrconfig/asrconfig-go/core/audio/flac"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const vorbisHeaders = 3 // identification, comments, setup

type vorbisMapping struct{ head *codec.Vorbis }

// parseVorbisHead reads the first packet. Source: Vorbis I specification, appendix A.
func parseVorbisHead(b []byte) (*stream, error) {
	head, err := codec.ParseVorbis(b)
	if err != nil {
		return nil, err
	}
	info := media.Info{SampleRate: head.Rate, Channels: head.Channels, Codec: "vorbis"}
	return &stream{mapping: vorbisMapping{head}, maxSamples: head.MaxPacketSamples(), info: info,
		headers: vorbisHeaders, trims: true}, nil
}

func (v vorbisMapping) samples(packet []byte) int64 { return v.head.Samples(packet) }

// plain: a later start shows when the packets cannot reach so far. Where the page lies within the
// first read, they are counted.
func (v vorbisMapping) plain(p page, _ []byte) bool {
	return p.granule <= int64(p.packets)*v.head.MaxPacketSamples() && p.next() > media.HeadLen
}

// setup finds the modes at the end of the setup header, the last packet before the sound.
func (v vorbisMapping) setup(s *media.File, end int64) error {
	n := min(end, codec.VorbisSetupLen)
	if !v.head.Setup(s.At(end-n, int(n))) {
		return media.Corrupt("has a Vorbis setup header that cannot be read")
	}
	return nil
}

const opusHeaders = 2 // the tags come second

type opusMapping struct{}

// parseOpusHead reads the first packet. Source: RFC 7845.
func parseOpusHead(b []byte) (*stream, error) {
	head, err := codec.ParseOpus(b)
	if err != nil {
		return nil, err
	}
	info := media.Info{SampleRate: codec.OpusRate, Channels: head.Channels, Codec: "opus"}
	return &stream{mapping: opusMapping{}, maxSamples: codec.MaxOpusSamples, info: info,
		headers: opusHeaders, skip: head.PreSkip}, nil
}

func (opusMapping) setup(*media.File, int64) error { return nil }
func (opusMapping) samples(packet []byte) int64    { return codec.OpusSamples(packet) }

// plain: the packets of a stream are nearly always of one length.
func (opusMapping) plain(p page, packet []byte) bool {
	return p.granule == int64(p.packets)*codec.OpusSamples(packet)
}

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
	return &stream{mapping: flacMapping{si}, maxSamples: flac.MaxFrameSamples, info: flac.InfoOf(si),
		headers: headers, claimed: int64(si.NSamples)}, nil
}

func (flacMapping) setup(*media.File, int64) error { return nil }

// plain: the frames of a stream are nearly always of one length.
func (f flacMapping) plain(p page, packet []byte) bool {
	return p.granule == int64(p.packets)*f.samples(packet)
}

func (f flacMapping) samples(packet []byte) int64 {
	frame, _ := flac.ParseFrameHeader(packet, f.StreamInfo)
	return frame.Samples
}

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
	samples := frame * max(1, frames)
	return &stream{mapping: speex(samples), maxSamples: samples, info: info, headers: 2 + int(extra),
		trims: true}, nil
}

func (x speex) setup(*media.File, int64) error { return nil }
func (x speex) samples([]byte) int64           { return int64(x) }

// plain: the encoder's look-ahead, less than a frame, is in no position.
func (x speex) plain(p page, _ []byte) bool {
	ahead := int64(p.packets)*int64(x) - p.granule
	return ahead >= 0 && ahead <= int64(x)
}
