package pcm

import (
	"encoding/binary"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const auHead = 24

// IsAU: ".snd", and the same backwards as little-endian writers have it: "dns." of libsndfile,
// "\0ds." of DEC and sox.
func IsAU(h []byte) bool {
	return len(h) >= 4 && (string(h[:4]) == ".snd" || string(h[:4]) == "dns." ||
		string(h[:4]) == "\x00ds." || string(h[:4]) == ".sd\x00")
}

// auPlain are the encodings with whole bytes: name and bytes per sample.
var auPlain = map[uint32]struct {
	codec string
	width int64
}{
	1: {"pcm_mulaw", 1}, 2: {"pcm_s8", 1}, 3: {"pcm_s16", 2}, 4: {"pcm_s24", 3}, 5: {"pcm_s32", 4},
	6: {"pcm_f32", 4}, 7: {"pcm_f64", 8},
	27: {"pcm_alaw", 1},
}

// auPacked are those with a few bits per sample.
var auPacked = map[uint32]struct {
	codec string
	bits  int
}{23: {"adpcm_g726le", 4}, 24: {"adpcm_g722", 4}, 25: {"adpcm_g726le", 3}, 26: {"adpcm_g726le", 5}}

// ParseAU reads the header of six numbers: offset and size of the data, encoding, rate, channels.
// Source: Sun "audio_filehdr(4)"; NeXT "SNDSoundStruct".
func ParseAU(s *media.File, base int64) (media.Info, error) {
	h := s.At(base, auHead)
	if len(h) < auHead {
		return media.Info{}, media.Corrupt("ends inside its header")
	}
	order, suffix := binary.ByteOrder(be), "be"
	if h[0] != '.' {
		order, suffix = le, "le"
	}
	word := func(i int) uint32 { return order.Uint32(h[4*i:]) }
	start, size := base+int64(word(1)), int64(word(2))
	info := media.Info{SampleRate: int(word(4)), Channels: int(word(5)), Method: "header"}
	switch {
	case word(1) < auHead-4: // some older writers have no channels or no text after the header
		return media.Info{}, media.Corrupt("has its samples inside its header, at byte %d", word(1))
	case info.Channels == 0 || info.Channels > 0xffff:
		return media.Info{}, media.Corrupt("has %d channels", info.Channels)
	}
	p, err := auEncoding(&info, word(3), suffix)
	if err != nil {
		return media.Info{}, err
	}
	available := max(0, s.Size-start)
	if size == 0xffffffff || size == 0 || size > available && IsOpen32(size) {
		// not known, or never filled in
		info.Method = "tail"
		return media.Finish(info, p.Frames(available), 0)
	}
	return media.Finish(info, p.Frames(min(size, available)), p.Frames(size))
}

func auEncoding(info *media.Info, encoding uint32, suffix string) (Packing, error) {
	if e, ok := auPlain[encoding]; ok {
		info.Codec, info.Bits = e.codec, int(8*e.width)
		if encoding >= 3 && encoding <= 7 {
			info.Codec += suffix
		}
		return PlainPacking(info.Channels, e.width), nil
	}
	if e, ok := auPacked[encoding]; ok {
		info.Codec, info.Bits = e.codec, e.bits
		return BitPacking(info.Channels, e.bits), nil
	}
	return Packing{}, media.Unsupported(
		"is an AU file with the encoding %d, which is not supported", encoding)
}
