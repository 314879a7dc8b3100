package isobmff

import (
	"fmt"
	"math"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/audio/codec"
	"github.com/asrconfig/asrconfig-go/core/audio/flac"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// codecs maps the kind of a sample entry to FFmpeg's codec name. The esds box refines mp4a.
var codecs = map[string]string{
	"mp4a": "aac", "alac": "alac", "Opus": "opus", "fLaC": "flac", "samr": "amr_nb",
	"sawb": "amr_wb", "ac-3": "ac3", "ec-3": "eac3",
	"ac-4": "ac4", "dtsc": "dts", "dtsh": "dts", "dtsl": "dts", "dtse": "dts", "mlpa": "truehd",
	"mha1": "mpegh_3d_audio",
	"mhm1": "mpegh_3d_audio", ".mp3": "mp3", "ms\x00\x55": "mp3", ".mp2": "mp2",
	"ms\x00\x02": "adpcm_ms", "ms\x00\x11": "adpcm_ima_wav",
	"ima4": "adpcm_ima_qt", "agsm": "gsm", "MAC3": "mace3", "MAC6": "mace6", "QDM2": "qdm2",
	"QDMC": "qdmc", "Qclp": "qcelp",
	"sqcp": "qcelp", "sevc": "evrc", "ulaw": "pcm_mulaw", "alaw": "pcm_alaw", "spex": "speex",
	"WMA2": "wmav2",
	"sowt": "pcm_", "twos": "pcm_", "raw ": "pcm_", "NONE": "pcm_", "in24": "pcm_", "in32": "pcm_",
	"fl32": "pcm_", "fl64": "pcm_",
	"lpcm": "pcm_", "ipcm": "pcm_", "fpcm": "pcm_",
}

// objectTypes maps the object type of an esds box (registered at mp4ra.org) to the codec; others,
// such as 0x40 and 0x66 to 0x68, are AAC.
var objectTypes = map[byte]string{
	0x69: "mp3", 0x6b: "mp3", 0xa5: "ac3", 0xa6: "eac3", 0xa9: "dts", 0xac: "dts", 0xad: "opus",
	0xdd: "vorbis", 0xe1: "qcelp", 0xa0: "evrc",
}

// sampleEntry is the fixed part of a sample entry for sound.
type sampleEntry struct {
	kind    string
	pcm     pcmFormat
	content box   // where its boxes lie
	packet  int64 // samples per channel in a packet of compressed sound; 0 when not said
	frame   int64 // bytes of a packet of all channels; 0 when not said
}

// parseDescription reads the first sample entry of a stsd box.
func (t *track) parseDescription(w boxReader, b box) error {
	version, _, _ := w.full(b, 4)
	entry, ok := w.box(b.body+8, b.end)
	if !ok || entry.cut {
		return media.Corrupt("has an audio track that does not name its codec (stsd box)")
	}
	e, err := t.parseEntry(w, entry, version)
	if err != nil {
		return err
	}
	if err := t.parseCodecBoxes(w, e.content, &e); err != nil {
		return err
	}
	t.finishEntry(&e)
	return nil
}

// parseEntry reads the fixed part. QuickTime lengthens it in versions 1 and 2; in an MP4 file of a
// newer kind of stsd box, version 1 is the plain one.
func (t *track) parseEntry(w boxReader, entry box, table byte) (sampleEntry, error) {
	e := sampleEntry{kind: string(entry.kind[:])}
	codec, ok := codecs[e.kind]
	switch {
	case e.kind == "enca" || e.kind == "drms" || e.kind == "aavd":
		return e, media.Unsupported("is encrypted")
	case !ok:
		return e, media.Unsupported("holds audio of an unknown codec (%q)", e.kind)
	}
	h := w.At(entry.body, int(min(64, entry.size())))
	if len(h) < 28 {
		return e, media.Corrupt("ends inside its sample description (%q)", e.kind)
	}
	t.info.Codec = codec
	t.info.Channels, t.info.Bits, t.info.SampleRate =
		int(be.Uint16(h[16:])), int(be.Uint16(h[18:])), int(be.Uint32(h[24:])>>16)
	head := int64(28)
	switch version := be.Uint16(h[8:]); {
	case version == 1 && table == 0 && len(h) >= 44:
		head = 44
		e.packet, e.frame = int64(be.Uint32(h[28:])), int64(be.Uint32(h[36:]))
	case version == 2 && table == 0 && len(h) >= 64:
		head = 64
		if rate := math.Float64frombits(be.Uint64(h[32:])); rate >= 1 && rate < 1<<31 {
			t.info.SampleRate = int(rate)
		}
		t.info.Channels, t.info.Bits = int(int32(be.Uint32(h[40:]))), int(be.Uint32(h[48:])&0xff)
		flags := be.Uint32(h[52:])
		e.pcm = pcmFormat{explicit: true, float: flags&1 != 0, big: flags&2 != 0,
			signed: flags&4 != 0}
	}
	e.content = box{body: min(entry.body+head, entry.end), end: entry.end}
	return e, nil
}

// parseCodecBoxes reads the boxes after the fixed part; QuickTime puts them into a wave box.
func (t *track) parseCodecBoxes(w boxReader, in box, e *sampleEntry) error {
	for b := range w.boxes(in.body, in.end) {
		h := w.At(b.body, int(min(b.size(), 256)))
		switch string(b.kind[:]) {
		case "wave":
			if in.is("wave") {
				continue
			}
			if err := t.parseCodecBoxes(w, b, e); err != nil {
				return err
			}
		case "esds":
			if len(h) > 4 {
				t.parseESDS(h[4:])
			}
		case "enda": // QuickTime: a number is not 0 when the samples are little-endian
			e.pcm.little = len(h) >= 2 && h[1] != 0
		case "pcmC": // ISO/IEC 23003-5
			if len(h) >= 6 {
				e.pcm.little, t.info.Bits = h[4]&1 != 0, int(h[5])
			}
		default:
			if err := t.parseCodecBox(string(b.kind[:]), h); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseCodecBox reads the header of one codec, h its first bytes.
func (t *track) parseCodecBox(kind string, h []byte) error {
	switch {
	case kind == "alac" && len(h) >= 28: // Apple, ALACMagicCookieDescription
		t.info.Bits, t.info.Channels, t.info.SampleRate =
			int(h[9]), int(h[13]), int(be.Uint32(h[24:]))
		t.limit(int64(be.Uint32(h[4:])), int64(t.info.SampleRate))
	case kind == "dOps" && len(h) >= 4:
		// Encapsulation of Opus in ISO Base Media File Format
		t.info.Channels, t.preSkip = int(h[1]), int64(be.Uint16(h[2:]))
	case kind == "dfLa" && len(h) >= 4:
		si, err := flac.ParseStreamInfo(h[4:])
		if err != nil {
			return err
		}
		t.info.SampleRate, t.info.Channels, t.info.Bits =
			int(si.SampleRate), int(si.NChannels), int(si.BitsPerSample)
		t.limit(int64(si.BlockSizeMax), int64(si.SampleRate))
	case kind == "dac3" && len(h) >= 3: // ETSI TS 102 366
		x := uint32(h[0])<<16 | uint32(h[1])<<8 | uint32(h[2])
		t.dolby(x>>22&3, x>>11&7, x>>10&1)
	case kind == "dec3" && len(h) >= 5:
		x := uint32(h[2])<<16 | uint32(h[3])<<8 | uint32(h[4])
		t.dolby(x>>22&3, x>>9&7, x>>8&1)
	}
	return nil
}

// dolby takes rate code, channel mode and low-frequency channel of AC-3.
func (t *track) dolby(rate, mode, low uint32) {
	if rate < 3 {
		t.info.SampleRate = [3]int{48000, 44100, 32000}[rate]
	}
	t.info.Channels = [8]int{2, 1, 2, 3, 3, 4, 4, 5}[mode] + int(low)
}

func (t *track) finishEntry(e *sampleEntry) {
	switch codec := t.info.Codec; codec {
	case "pcm_":
		t.info.Codec, t.info.Bits = e.pcm.name(e.kind, t.info.Bits)
		t.described = sampleUnit{int64(t.info.Bits/8) * int64(t.info.Channels), 1}
	case "pcm_mulaw", "pcm_alaw":
		t.info.Bits = 8
		t.described = sampleUnit{int64(t.info.Channels), 1}
	case "opus":
		t.info.SampleRate, t.info.Bits = 48000, 0
		t.limit(5760, 48000)
	case "amr_nb", "amr_wb":
		t.info.SampleRate, t.info.Channels, t.info.Bits = map[string]int{"amr_nb": 8000,
			"amr_wb": 16000}[codec], 1, 0
	case "adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms":
		t.info.Bits = 4
	case "alac", "flac":
	default:
		t.info.Bits = 0
	}
	if t.described.bytes == 0 {
		t.described = sampleUnit{e.frame, e.packet}
	}
	if t.info.SampleRate == 0 {
		t.info.SampleRate = int(t.scale)
	}
}

// limit sets longest: one packet of the codec plays so many samples at rate.
func (t *track) limit(samples, rate int64) {
	if samples > 0 && rate > 0 {
		t.longest = (samples*t.scale + rate - 1) / rate
	}
}

type pcmFormat struct {
	explicit           bool // the flags of a lpcm entry say it all
	float, big, signed bool
	little             bool // what enda or pcmC say
}

// name returns FFmpeg's name of the codec and the bits of a sample. Source: Apple, QuickTime File
// Format, sound sample descriptions.
func (p pcmFormat) name(kind string, bits int) (string, int) {
	if !p.explicit {
		p.signed, p.big = true, !p.little
		switch kind {
		case "sowt":
			p.big = false
		case "raw ", "NONE":
			p.signed = bits > 8
		case "fl32", "fl64", "fpcm":
			p.float = true
		}
		if n, err := strconv.Atoi(kind[2:]); err == nil { // "in24", "fl32"
			bits = n
		}
	}
	letter, order := "u", "le"
	if p.signed {
		letter = "s"
	}
	if p.float {
		letter = "f"
	}
	if p.big {
		order = "be"
	}
	bits = max(8, (bits+7)/8*8)
	if bits == 8 {
		order = ""
	}
	return fmt.Sprintf("pcm_%s%d%s", letter, bits, order), bits
}

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
