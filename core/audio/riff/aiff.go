package riff

import (
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/audio/pcm"
)

type aiff struct {
	pcm.Packing
	info   media.Info
	frames int64 // of the COMM chunk: samples per channel, or packets where some writers mean those
	ssnd   chunk
	start  int64 // of the samples
}

// IsAIFF reports whether h starts an AIFF or AIFC file.
func IsAIFF(h []byte) bool {
	return len(h) >= 12 && string(h[:4]) == "FORM" &&
		(string(h[8:12]) == "AIFF" || string(h[8:12]) == "AIFC")
}

// ParseAIFF walks the chunks of an AIFF or AIFC file to COMM and SSND, which may come in any order.
// Sources: Apple "Audio Interchange File Format" 1.3 and its AIFF-C draft; QuickTime's codecs.
func ParseAIFF(s *media.File, base int64) (media.Info, error) {
	var a aiff
	compressed := string(s.At(base+8, 4)) == "AIFC"
	off := base + 12
	for range maxChunks {
		c, ok := rifxChunks.read(s, off)
		if !ok {
			break
		}
		switch id := string(c.id[:]); {
		case id == "COMM" && a.info.Codec == "":
			if err := a.common(c.peek, compressed); err != nil {
				return media.Info{}, err
			}
		case id == "SSND" && a.ssnd.body == 0:
			if len(c.peek) >= 4 {
				// offset and block size count even where the chunk's own size was never filled in
				a.start = int64(be.Uint32(c.peek))
			}
			a.start += c.body + 8
			c.size = a.soundSize(s, c)
			a.ssnd = c
		}
		if a.info.Codec != "" && a.ssnd.body != 0 {
			return a.length(s)
		}
		off = rifxChunks.next(s, c)
	}
	if a.info.Codec == "" {
		return media.Info{}, media.Corrupt("has no COMM chunk, which gives its rate and format")
	}
	return media.Info{}, media.Corrupt("ends before its SSND chunk and holds no audio")
}

// soundSize settles how many bytes an SSND chunk claims.
func (a *aiff) soundSize(s *media.File, c chunk) int64 {
	available := s.Size - c.body
	if rifxChunks.isOpen(s, c) || c.size == 0 && available > 8 && !rifxChunks.reachEnd(s, c.body) {
		return openSize
	}
	return c.size
}

// common reads the COMM chunk: channels, samples, bits, rate, and in AIFC the codec.
func (a *aiff) common(b []byte, compressed bool) error {
	if len(b) < 18 {
		return media.Corrupt("has a COMM chunk of %d bytes instead of 18 or more", len(b))
	}
	a.info = media.Info{Channels: int(be.Uint16(b)), Bits: int(be.Uint16(b[6:])),
		SampleRate: extended(b[8:18]), Method: "header"}
	a.frames = int64(be.Uint32(b[2:]))
	switch {
	case a.info.SampleRate <= 0:
		return media.Corrupt("has a sample rate of 0 Hz or NaN")
	case a.info.Channels == 0 || a.info.Channels > 0x7fff:
		return media.Corrupt("has %d channels", int16(a.info.Channels))
	}
	kind := "NONE"
	if compressed {
		if len(b) < 22 {
			return media.Corrupt("has a COMM chunk of %d bytes, too short to name its codec",
				len(b))
		}
		kind = string(b[18:22])
	}
	return a.codec(kind)
}

func (a *aiff) codec(kind string) error {
	width := int64(a.info.Bits+7) / 8
	switch strings.ToUpper(kind) {
	case "NONE", "TWOS", "SOWT":
		a.info.Codec = pcm.PlainCodec('s', width, !strings.EqualFold(kind, "SOWT"))
	default:
		return a.otherCodec(kind)
	}
	if a.info.Codec == "" {
		return media.Corrupt("has samples of %d bits", a.info.Bits)
	}
	a.Packing = pcm.PlainPacking(a.info.Channels, width)
	return nil
}

// aiffPlain are the codecs whose sample size is fixed, whatever the bits field has.
var aiffPlain = map[string]struct {
	codec string
	width int64
}{
	"RAW ": {"pcm_u8", 1}, "ULAW": {"pcm_mulaw", 1}, "ALAW": {"pcm_alaw", 1},
	"IN24": {"pcm_s24be", 3}, "42NI": {"pcm_s24le", 3},
	"IN32": {"pcm_s32be", 4}, "23NI": {"pcm_s32le", 4}, "FL32": {"pcm_f32be", 4},
	"FL64": {"pcm_f64be", 8},
}

// aiffBlocks are the codecs with blocks of so many bytes per channel.
var aiffBlocks = map[string]struct {
	codec          string
	bytes, samples int64
}{
	"IMA4": {"adpcm_ima_qt", 34, 64}, "MAC3": {"mace3", 2, 6}, "MAC6": {"mace6", 1, 6},
	"GSM ": {"gsm", 33, 160}, "AGSM": {"gsm", 33, 160},
}

func (a *aiff) otherCodec(kind string) error {
	channels := int64(a.info.Channels)
	if p, ok := aiffPlain[strings.ToUpper(kind)]; ok {
		a.info.Codec, a.info.Bits, a.Packing =
			p.codec, int(8*p.width), pcm.PlainPacking(a.info.Channels, p.width)
		return nil
	}
	if p, ok := aiffBlocks[strings.ToUpper(kind)]; ok {
		a.info.Codec, a.Packing = p.codec, pcm.Packing{Align: p.bytes * channels, Samples: p.samples}
		return nil
	}
	return media.Unsupported("is an AIFC file with the codec %q, which is not supported", kind)
}

// length returns how much audio the SSND chunk holds. Decoders play all of it, whatever COMM
// claims.
func (a *aiff) length(s *media.File) (media.Info, error) {
	samples := a.Frames(max(0, s.Size-a.start))
	if a.ssnd.size == openSize {
		a.info.Method = "tail"
		return media.Finish(a.info, samples, 0)
	}
	sound := a.ssnd.body + a.ssnd.size - a.start
	if sound < 0 {
		return media.Info{}, media.Corrupt(
			"has an SSND chunk of %d bytes whose samples start after it", a.ssnd.size)
	}
	claimed := a.Frames(sound)
	samples = min(samples, claimed)
	declared := a.frames
	if packets := declared * a.Samples; declared > 0 && packets != claimed &&
		(declared > claimed || declared <= claimed-a.Samples) {
		claimed = declared
	}
	return media.Finish(a.info, samples, claimed)
}

// extended returns a rate of 80 bits (IEEE 754 extended, big endian), rounded to whole Hz; 0 when
// it is negative, not a number or at least 2^32.
func extended(b []byte) int {
	exponent, mantissa := int(be.Uint16(b))-16383, be.Uint64(b[2:])
	if exponent < 0 || exponent > 31 { // negative, not a number, below 1 or too large
		return 0
	}
	hz := mantissa >> (63 - exponent)
	if mantissa>>(62-exponent)&1 == 1 {
		hz++
	}
	return int(hz)
}
