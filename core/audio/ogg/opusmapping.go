package ogg

import (
	"github.com/asrconfig/asrconfig-go/core/audio/codec"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const opusHeaders = 2 // the tags come second

// opusMapping is a stream of Opus packets.
type opusMapping struct{}

// parseOpusHead reads the first packet. Source: RFC 7845.
func parseOpusHead(b []byte) (*stream, error) {
	head, err := codec.ParseOpus(b)
	if err != nil {
		return nil, err
	}
	info := media.Info{SampleRate: codec.OpusRate, Channels: head.Channels, Codec: "opus"}
	return &stream{mapping: opusMapping{}, info: info, headers: opusHeaders, skip: head.PreSkip},
		nil
}

func (opusMapping) maxSamples() int64              { return codec.MaxOpusSamples }
func (opusMapping) setup(*media.File, int64) error { return nil }
func (opusMapping) samples(packet []byte) int64    { return codec.OpusSamples(packet) }

// plain: the packets of a stream are nearly always of one length.
func (opusMapping) plain(p page, packet []byte) bool {
	return p.granule == int64(p.packets)*codec.OpusSamples(packet)
}
