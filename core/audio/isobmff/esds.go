package isobmff

import (
	"github.com/asrconfig/asrconfig-go/core/audio/codec"
)

// Tags of descriptors. Source: ISO/IEC 14496-1.
const (
	tagES      = 3
	tagDecoder = 4
	tagSpecial = 5
)

// descriptor reads the tag and the length in front of b.
func descriptor(b []byte) (tag byte, body []byte, ok bool) {
	if len(b) < 2 {
		return 0, nil, false
	}
	tag, b = b[0], b[1:]
	var n int
	for i := 0; i < 4 && i < len(b); i++ {
		n = n<<7 | int(b[i]&0x7f)
		if b[i] < 0x80 {
			b = b[i+1:]
			return tag, b[:min(n, len(b))], true
		}
	}
	return 0, nil, false
}

// parseESDS reads the codec of an mp4a entry, and for AAC its own header. What cannot be read keeps
// the sample entry's value.
func (t *track) parseESDS(b []byte) {
	tag, b, ok := descriptor(b)
	if ok && tag == tagES && len(b) >= 3 {
		flags := b[2]
		skip := 3
		if flags&0x80 != 0 {
			skip += 2
		}
		if flags&0x40 != 0 && len(b) > skip {
			skip += 1 + int(b[skip])
		}
		if flags&0x20 != 0 {
			skip += 2
		}
		tag, b, ok = descriptor(b[min(skip, len(b)):])
	}
	if !ok || tag != tagDecoder || len(b) < 13 {
		return
	}
	if codec, other := objectTypes[b[0]]; other {
		t.info.Codec = codec
		return
	}
	if tag, b, ok = descriptor(b[13:]); ok && tag == tagSpecial {
		t.parseAAC(b)
	}
}

// parseAAC applies the AudioSpecificConfig.
func (t *track) parseAAC(b []byte) {
	c, ok := codec.ParseAAC(b)
	if !ok {
		return
	}
	t.info.SampleRate, t.info.Channels = c.Rate, c.Channels
	if c.Codec != "" {
		t.info.Codec = c.Codec
	}
	t.limit(c.Frame, int64(c.Core))
}
