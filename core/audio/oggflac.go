package audio

import "github.com/mewkiz/flac/meta"

const (
	flacMappingHead = 9  // magic, version and number of header packets, in front of the native magic
	flacMappingLen  = 51 // all of the first packet
)

// flacMapping is the stream info: packets are frames of native FLAC.
type flacMapping struct{ *meta.StreamInfo }

// parseOggFLACHead reads the first packet. Source: RFC 9639, section 10.1.
func parseOggFLACHead(b []byte) (*oggStream, error) {
	if len(b) < flacMappingLen {
		return nil, corrupt("ends inside its FLAC header")
	}
	if b[5] != 1 {
		return nil, unsupported("is FLAC inside Ogg of version %d instead of 1", b[5])
	}
	si, err := streamInfo(b[flacMappingHead+flacMagicLen : flacMappingLen])
	if err != nil {
		return nil, err
	}
	headers := int(b[7])<<8 + int(b[8])
	if headers > 0 {
		headers++ // this one is not among them
	}
	return &oggStream{oggCodec: flacMapping{si}, info: flacInfo(si), headers: headers, claimed: int64(si.NSamples)}, nil
}

// parseOldOggFLAC: before 2004, frames were put into Ogg without a mapping.
func parseOldOggFLAC([]byte) (*oggStream, error) {
	return nil, unsupported("is FLAC inside Ogg of before version 1.1.1, which is not read")
}

func (flacMapping) most() int64                { return maxFrameSamples }
func (flacMapping) setup(*source, int64) error { return nil }

// plain: the frames of a stream are nearly always of one length.
func (f flacMapping) plain(p oggPage, packet []byte) bool {
	return p.granule == int64(p.packets)*f.samples(packet)
}

func (f flacMapping) samples(packet []byte) int64 {
	frame, _ := parseFrameHeader(packet, f.StreamInfo)
	return frame.samples
}
