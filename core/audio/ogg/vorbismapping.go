package ogg

import (
	"github.com/asrconfig/asrconfig-go/core/audio/codec"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const vorbisHeaders = 3 // identification, comments, setup

// vorbisMapping is a stream of Vorbis packets.
type vorbisMapping struct{ head *codec.Vorbis }

// parseVorbisHead reads the first packet. Source: Vorbis I specification, appendix A.
func parseVorbisHead(b []byte) (*stream, error) {
	head, err := codec.ParseVorbis(b)
	if err != nil {
		return nil, err
	}
	info := media.Info{SampleRate: head.Rate, Channels: head.Channels, Codec: "vorbis"}
	return &stream{mapping: vorbisMapping{head}, info: info, headers: vorbisHeaders, trims: true},
		nil
}

func (v vorbisMapping) maxSamples() int64           { return v.head.Most() }
func (v vorbisMapping) samples(packet []byte) int64 { return v.head.Samples(packet) }

// plain: a later start shows when the packets cannot reach so far. Where the page lies within the
// first read, they are counted.
func (v vorbisMapping) plain(p page, _ []byte) bool {
	return p.granule <= int64(p.packets)*v.maxSamples() && p.next() > media.HeadLen
}

// setup finds the modes at the end of the setup header, the last packet before the sound.
func (v vorbisMapping) setup(s *media.File, end int64) error {
	n := min(end, codec.VorbisSetupLen)
	if !v.head.Setup(s.At(end-n, int(n))) {
		return media.Corrupt("has a Vorbis setup header that cannot be read")
	}
	return nil
}
