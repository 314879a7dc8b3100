package pcm

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

const (
	// "NIST_1A\n" and the length of the header, right-aligned in 7 bytes, "\n"
	sphereLines   = 16
	maxSphereHead = 64 << 10 // nearly all have 1024 bytes
	// samples that a bit of compressed audio may stand for at most: silence
	minShortenBits = 32
)

// sphere is the text header of a NIST file.
type sphere map[string]string

// ParseSPHERE reads a NIST SPHERE file, as LDC corpora have them: a text header of a length of its
// own, then samples. Source: NIST "Speech Header Resources" 2.6.
func ParseSPHERE(s *media.File, base int64) (media.Info, error) {
	first := s.At(base, sphereLines)
	if len(first) < sphereLines {
		return media.Info{}, media.Corrupt("ends inside its header")
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(first[8:])))
	if err != nil || n < sphereLines || n > maxSphereHead {
		return media.Info{}, media.Corrupt("has no valid header length (%d to %d bytes)",
			sphereLines, maxSphereHead)
	}
	text := s.At(base, n)
	if len(text) < n {
		return media.Info{}, media.Corrupt("ends inside its header of %d bytes", n)
	}
	h := sphereFields(text[sphereLines:])
	info := media.Info{SampleRate: h.number("sample_rate"),
		Channels: max(1, h.number("channel_count")), Method: "header"}
	return h.length(info, max(0, s.Size-base-int64(n)))
}

// sphereFields splits lines of "name -type value".
func sphereFields(text []byte) sphere {
	h := make(sphere)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 0 && f[0] == "end_head" {
			break
		}
		if len(f) >= 3 && strings.HasPrefix(f[1], "-") {
			h[f[0]] = strings.Join(f[2:], " ")
		}
	}
	return h
}

// number returns a whole number, 0 when it is missing or none.
func (h sphere) number(name string) int {
	x, err := strconv.ParseFloat(h[name], 64) // some write the rate as 16000.0
	if err != nil || x < 0 || x > 1<<40 || x != float64(int(x)) {
		return 0
	}
	return int(x)
}

// length returns how much audio the available bytes after the header hold. Decoders play all of it,
// whatever sample_count (per channel) says.
func (h sphere) length(info media.Info, available int64) (media.Info, error) {
	width, claimed := h.number("sample_n_bytes"), int64(h.number("sample_count"))
	coding, packed, compressed := strings.Cut(h["sample_coding"], ",embedded-")
	switch strings.ToLower(coding) {
	case "", "pcm", "pcm-2", "linear":
		if width == 0 {
			width = 2
		}
		info.Codec = PlainCodec('s', int64(width),
			strings.HasPrefix(h["sample_byte_format"], "1")) // "01" is little endian
	case "ulaw", "mu-law", "mulaw":
		info.Codec, width = "pcm_mulaw", 1
	case "alaw", "a-law":
		info.Codec, width = "pcm_alaw", 1
	default:
		return media.Info{}, media.Unsupported(
			"is a SPHERE file coded as %q, which is not supported",
			fault.Shorten(h["sample_coding"]))
	}
	if info.Codec == "" {
		return media.Info{}, media.Corrupt("has samples of %d bytes", width)
	}
	if info.Channels > 0xffff {
		return media.Info{}, media.Corrupt("has %d channels", info.Channels)
	}
	info.Bits = 8 * width
	if compressed {
		return sphereShorten(info, packed, available, claimed)
	}
	if claimed == 0 { // sent through a pipe
		info.Method = "tail"
	}
	return media.Finish(info, PlainPacking(info.Channels, int64(width)).Frames(available), claimed)
}

// sphereShorten takes the length of compressed samples from the header: anything better requires
// decoding all of them.
func sphereShorten(info media.Info, packed string, available, claimed int64) (media.Info, error) {
	switch {
	case !strings.HasPrefix(packed, "shorten"):
		return media.Info{}, media.Unsupported(
			"is a SPHERE file compressed by %q, which is not supported", fault.Shorten(packed))
	case claimed == 0:
		return media.Info{}, media.Unsupported(
			"is compressed by shorten, and its header has no length")
	case claimed*int64(info.Channels)/minShortenBits/8 > available:
		return media.Info{}, media.Corrupt("claims %d samples, more than its %d bytes can hold",
			claimed, available)
	}
	info.Codec, info.Method = "shorten", "estimated"
	return media.Finish(info, claimed, claimed)
}
