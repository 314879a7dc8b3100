package audio

const opusHeaders = 2 // the tags come second

// opusMapping is a stream of Opus packets.
type opusMapping struct{}

// parseOggOpusHead reads the first packet. Source: RFC 7845, section 3.
func parseOggOpusHead(b []byte) (*oggStream, error) {
	head, err := parseOpusHead(b)
	if err != nil {
		return nil, err
	}
	info := Info{SampleRate: opusRate, Channels: head.channels, Codec: "opus"}
	return &oggStream{oggCodec: opusMapping{}, info: info, headers: opusHeaders, skip: head.preSkip}, nil
}

func (opusMapping) most() int64                 { return opusMost }
func (opusMapping) setup(*source, int64) error  { return nil }
func (opusMapping) samples(packet []byte) int64 { return opusSamples(packet) }

// plain: the packets of a stream are nearly always of one length.
func (opusMapping) plain(p oggPage, packet []byte) bool {
	return p.granule == int64(p.packets)*opusSamples(packet)
}
