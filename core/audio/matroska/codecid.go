package matroska

import (
	"bytes"
	"math"
	"strings"

	"github.com/mewkiz/flac/meta"

	"github.com/asrconfig/asrconfig-go/core/audio/codec"
	"github.com/asrconfig/asrconfig-go/core/audio/flac"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/audio/pcm"
)

// codecs maps Matroska's name of a codec, up to a slash where it has variants, to FFmpeg's. Source:
// RFC 9559 and the codec mappings beside it.
var codecs = map[string]string{
	"A_OPUS": "opus", "A_VORBIS": "vorbis", "A_AAC": "aac", "A_FLAC": "flac", "A_MPEG/L3": "mp3",
	"A_MPEG/L2": "mp2", "A_MPEG/L1": "mp1",
	"A_AC3": "ac3", "A_EAC3": "eac3", "A_ALAC": "alac", "A_DTS": "dts", "A_TRUEHD": "truehd",
	"A_MLP": "mlp", "A_TTA1": "tta",
	"A_WAVPACK4": "wavpack", "A_PCM/INT/LIT": "pcm_", "A_PCM/INT/BIG": "pcm_",
	"A_PCM/FLOAT/IEEE": "pcm_",
}

// packets returns how many samples a packet plays: a fixed number, or by its size or first bytes.
type packets struct {
	fixed  int64
	bytes  int64 // of a sample of all channels
	vorbis *codec.Vorbis
	flac   *meta.StreamInfo
	codec  string
}

func (t *track) codec(w ebmlReader) error {
	name, ok := codecs[t.id]
	if root, _, _ := strings.Cut(t.id, "/"); !ok {
		name, ok = codecs[root] // "A_AAC/MPEG4/LC", "A_DTS/EXPRESS"
	}
	if !ok {
		return media.Unsupported("holds audio of an unknown codec (%q)", t.id)
	}
	t.info.Codec, t.packets.codec = name, name
	private := w.At(t.private.body, int(min(maxPrivateLen, t.private.size())))
	switch name {
	case "opus":
		return t.opus(private)
	case "vorbis":
		return t.vorbis(w, private)
	case "flac":
		return t.flac(private)
	case "alac":
		t.alac(private)
	case "pcm_":
		return t.pcm()
	case "aac":
		t.aac(private)
	case "tta", "wavpack":
	default:
		t.info.Bits = 0
		t.packets.fixed = map[string]int64{"mp3": 1152, "mp2": 1152, "mp1": 384, "ac3": 1536}[name]
		if name == "mp3" && t.info.SampleRate < 32000 {
			t.packets.fixed = 576
		}
	}
	return nil
}

func (t *track) opus(private []byte) error {
	t.info.SampleRate, t.info.Bits = codec.OpusRate, 0
	if bytes.HasPrefix(private, []byte("OpusHead")) {
		head, err := codec.ParseOpus(private)
		if err != nil {
			return err
		}
		t.info.Channels, t.preSkip = head.Channels, head.PreSkip
	}
	return nil
}

// vorbis takes apart the three headers: a count of 2, the lengths of the first two in steps of 255,
// then all three.
func (t *track) vorbis(w ebmlReader, private []byte) error {
	t.info.Bits = 0
	if len(private) < 3 || private[0] != 2 {
		return media.Corrupt("has a Vorbis track without its headers")
	}
	pos := 1
	for range 2 {
		for pos < len(private) && private[pos] == 255 {
			pos++
		}
		pos++
	}
	if pos > len(private) || !bytes.HasPrefix(private[pos:], []byte("\x01vorbis")) {
		return media.Corrupt("has a Vorbis track without its headers")
	}
	head, err := codec.ParseVorbis(private[pos:])
	if err != nil {
		return err
	}
	t.info.SampleRate, t.info.Channels = head.Rate, head.Channels
	n := min(codec.VorbisSetupLen, t.private.size())
	if head.Setup(w.At(t.private.end-n, int(n))) {
		t.packets.vorbis = head
	}
	return nil
}

func (t *track) flac(private []byte) error {
	if !bytes.HasPrefix(private, []byte("fLaC")) {
		return media.Corrupt("has a FLAC track without its stream info")
	}
	si, err := flac.ParseStreamInfo(private[4:])
	if err != nil {
		return err
	}
	t.info, t.packets.flac = flac.InfoOf(si), si
	return nil
}

// alac reads the magic cookie.
func (t *track) alac(b []byte) {
	if len(b) >= 24 {
		t.packets.fixed, t.info.Bits, t.info.Channels = int64(be.Uint32(b)), int(b[5]), int(b[9])
		t.info.SampleRate = int(be.Uint32(b[20:]))
	}
}

func (t *track) pcm() error {
	width, kind := int64(t.info.Bits/8), byte('s')
	switch {
	case strings.Contains(t.id, "FLOAT"):
		kind = 'f'
	case width == 1:
		kind = 'u'
	}
	t.info.Codec = pcm.PlainCodec(kind, width, strings.Contains(t.id, "BIG"))
	if t.packets.bytes = width * int64(t.info.Channels); t.info.Codec == "" {
		return media.Corrupt("has samples of %d bits", t.info.Bits)
	}
	return nil
}

// aac counts in samples as they are played: with SBR twice as many as are coded.
func (t *track) aac(private []byte) {
	t.info.Bits = 0
	c, ok := codec.ParseAAC(private)
	if !ok {
		t.packets.fixed = 1024
		if strings.HasSuffix(t.id, "/SBR") {
			t.packets.fixed = 2048
		}
		return
	}
	t.info.SampleRate, t.info.Channels = c.Rate, c.Channels
	t.packets.fixed = c.Frame * int64(c.Rate) / int64(c.Core)
}

const packetPeek = 16

// samples returns the samples of a packet of size bytes from its first bytes; 0 when unknown.
func (p *packets) samples(head []byte, size int64) int64 {
	switch {
	case p.bytes > 0:
		return size / p.bytes
	case p.vorbis != nil:
		return p.vorbis.Samples(head)
	case p.flac != nil:
		f, _ := flac.ParseFrameHeader(head, p.flac)
		return f.Samples
	}
	switch p.codec {
	case "opus":
		return codec.OpusSamples(head)
	case "eac3":
		return codec.DolbySamples(head)
	case "alac":
		return codec.ALACSamples(head, p.fixed)
	case "wavpack": // the block head is stripped down to this count
		if len(head) >= 4 {
			return int64(le.Uint32(head))
		}
	}
	return p.fixed
}

// snap takes the rounding of timestamps off a length where packets allow only some lengths: a tick
// for the first and the last one together, and ms at the least, as files are often made from
// others.
func (p *packets) snap(samples, tick float64) int64 {
	grain := float64(p.fixed)
	switch p.codec {
	case "opus":
		grain = 120 // 2.5 ms
	case "alac", "eac3", "wavpack": // whose packets differ
		grain = 0
	}
	if grain > 0 {
		if n := math.Round(samples/grain) * grain; math.Abs(n-samples) <= tick {
			samples = n
		}
	}
	return int64(samples + 0.5)
}
