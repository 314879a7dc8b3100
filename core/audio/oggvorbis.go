package audio

const vorbisHeaders = 3 // identification, comments, setup

// vorbisMapping is a stream of Vorbis packets.
type vorbisMapping struct{ head *vorbis }

// parseOggVorbisHead reads the first packet. Source: Vorbis I specification, appendix A.
func parseOggVorbisHead(b []byte) (*oggStream, error) {
	head, err := parseVorbis(b)
	if err != nil {
		return nil, err
	}
	info := Info{SampleRate: head.rate, Channels: head.channels, Codec: "vorbis"}
	return &oggStream{oggCodec: vorbisMapping{head}, info: info, headers: vorbisHeaders, trims: true}, nil
}

func (v vorbisMapping) most() int64                 { return v.head.most() }
func (v vorbisMapping) samples(packet []byte) int64 { return v.head.samples(packet) }

// plain: a later start shows when the packets cannot reach so far. Where the page lies within the first read, they are counted.
func (v vorbisMapping) plain(p oggPage, _ []byte) bool {
	return p.granule <= int64(p.packets)*v.most() && p.next() > headLen
}

// setup finds the modes at the end of the setup header, the last packet before the sound.
func (v vorbisMapping) setup(s *source, end int64) error {
	n := min(end, setupTail)
	if !v.head.setup(s.at(end-n, int(n))) {
		return corrupt("has a Vorbis setup header that cannot be read")
	}
	return nil
}
