package isobmff

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// TestMP4Fixtures holds the length against the sound that was encoded, whole frames where the format
// has no place for the padding. FFmpeg 5.1 plays the last frame out even where the file says that
// only part of it is sound, passes over the edit list of fragments, and knows iTunSMPB's priming but
// not its length.
func TestMP4Fixtures(t *testing.T) {
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "tone.m4a", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "aac", Method: "header"}},
		{File: "front.m4a", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "aac", Method: "header"}},
		{File: "film.mp4", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "aac", Method: "header"}},
		{File: "fragments.m4a", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "aac", Method: "walked"}},
		{File: "fragments_opus.mp4", Samples: 52800, Want: media.Info{SampleRate: 48000, Channels: 1, Codec: "opus", Method: "walked"}},
		{File: "sbr_itunes_44k.m4a", Samples: 48510, Want: media.Info{SampleRate: 44100, Channels: 2, Codec: "aac", Method: "header"}},
		{File: "sbr_ps_44k.m4a", Samples: 48510, Want: media.Info{SampleRate: 44100, Channels: 2, Codec: "aac", Method: "header"}},
		{File: "alac_96k_0.1s.m4a", Samples: 9600, Want: media.Info{SampleRate: 96000, Channels: 1, Bits: 16, Codec: "alac", Method: "header"}},
		{File: "flac_0.3s.mp4", Samples: 4800, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
		{File: "ima4_8k.mov", Samples: 8832, Want: media.Info{SampleRate: 8000, Channels: 1, Bits: 4, Codec: "adpcm_ima_qt", Method: "header"}},
		{File: "ac3_48k.mp4", Samples: 53504, Want: media.Info{SampleRate: 48000, Channels: 1, Codec: "ac3", Method: "header"}},
		{File: "amrwb.3gp", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "amr_wb", Method: "header"}},
	})
}

// TestMP4Truncated cuts a file whose index is in front at every byte: what is left counts by whole
// samples, and is flagged.
func TestMP4Truncated(t *testing.T) {
	b := audiotest.Fixture(t, "front.m4a")
	bodyOf := func(kind string) int { return bytes.Index(b, []byte(kind)) + 4 }
	data := bodyOf("mdat")
	first := int(be.Uint32(b[bodyOf("stco")+8:]))
	sizes := b[bodyOf("stsz")+12:]
	const samples, frame, priming, total = 19, 1024, 1024, 17600
	for n := range len(b) {
		present, end := 0, first
		for i := range samples {
			if end += int(be.Uint32(sizes[4*i:])); end <= n {
				present = min((i+1)*frame-priming, total)
			}
		}
		info, err := audiotest.Bytes("cut", b[:n])
		switch {
		case present <= 0:
			audiotest.RefusedAs(t, err, fault.Corrupt, "cut: ", "")
			if n >= data {
				assert.ErrorContains(t, err, "holds no audio, though its header claims 1.100 s")
			}
		default:
			require.NoError(t, err, n)
			assert.InDelta(t, float64(present)/16000, info.DurationS, 1e-9, n)
			if present < total {
				require.NotNil(t, info.ClaimedS, n)
				assert.InDelta(t, 1.1, *info.ClaimedS, 1e-9)
				assert.Equal(t, "walked", info.Method)
			}
		}
	}
	tail := audiotest.Fixture(t, "tone.m4a")
	for _, n := range []int{30, 1000, bytes.Index(tail, []byte("moov")) - 4} {
		_, err := audiotest.Bytes("x", tail[:n])
		audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "has no moov box, its index: the recording or the transfer was cut short")
	}
	_, err := audiotest.Bytes("x", tail[:len(tail)-1])
	audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "ends inside its moov box")
}

func TestMP4FragmentsTruncated(t *testing.T) {
	for _, name := range []string{"fragments.m4a", "fragments_opus.mp4"} {
		b := audiotest.Fixture(t, name)
		full, err := audiotest.Bytes(name, b)
		require.NoError(t, err)
		before := 0.0
		for n := bytes.Index(b, []byte("moof")) - 4; n < len(b); n++ {
			info, err := audiotest.Bytes(name, b[:n])
			if err != nil {
				audiotest.RefusedAs(t, err, fault.Corrupt, name+": ", "holds no audio")
				assert.Zero(t, before, n)
				continue
			}
			assert.GreaterOrEqual(t, info.DurationS, before, n)
			assert.LessOrEqual(t, info.DurationS, full.DurationS)
			if info.ClaimedS != nil {
				assert.Greater(t, *info.ClaimedS, info.DurationS)
			}
			before = info.DurationS
		}
		assert.Equal(t, full.DurationS, before, "what is behind the last sample is not missed")
		_, err = audiotest.Bytes(name, append(bytes.Clone(b[:24]), b[bytes.Index(b, []byte("moof"))-4:]...))
		audiotest.RefusedAs(t, err, fault.Corrupt, name+": ", "piece of a fragmented file without its header")
	}
}

// boxed makes a box.
func boxed(kind string, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(append(be.AppendUint32(nil, uint32(8+len(body))), kind...), body...)
}

func words(values ...uint32) (b []byte) {
	for _, v := range values {
		b = be.AppendUint32(b, v)
	}
	return b
}

// mp4Maker builds a small file of PCM or any other codec whose samples are 2 bytes; each part can
// be replaced.
type mp4Maker struct {
	start, mvhd, mdhd, hdlr, elst, entry, stts, stsc, stsz, stco, mvex []byte
	data                                                               int
	front                                                              bool // the index in front
	behind                                                             []byte
}

const makerRate = 1000

func entry(kind string, version, channels, bits uint16, rate uint32, more ...[]byte) []byte {
	head := be.AppendUint16(be.AppendUint16(make([]byte, 6), 1), version)
	head = be.AppendUint16(be.AppendUint16(append(head, make([]byte, 6)...), channels), bits)
	return boxed(kind, head, make([]byte, 4), words(rate<<16), bytes.Join(more, nil))
}

// maker has 2000 samples of 16 bits in 4 chunks of 500, at 1000 Hz.
func maker() *mp4Maker {
	return &mp4Maker{
		start: boxed("ftyp", []byte("qt  \x00\x00\x02\x00qt  ")),
		mvhd:  boxed("mvhd", words(0, 0, 0, 600, 1200), make([]byte, 80)),
		mdhd:  boxed("mdhd", words(0, 0, 0, makerRate, 2000, 0)),
		hdlr:  boxed("hdlr", words(0, 0), []byte("soun"), make([]byte, 13)),
		entry: entry("sowt", 0, 1, 16, makerRate),
		stts:  words(0, 1, 2000, 1),
		stsc:  words(0, 1, 1, 500, 1),
		stsz:  boxed("stsz", words(0, 2, 2000)),
		data:  4000,
	}
}

// bytes puts the file together; chunk i starts 1000 i bytes into the media data, if stco does not
// say otherwise.
func (m *mp4Maker) bytes() []byte {
	index := func(base uint32) []byte {
		stco := m.stco
		if stco == nil {
			stco = boxed("stco", words(0, 4, base, base+1000, base+2000, base+3000))
		}
		table := boxed("stbl", boxed("stsd", words(0, 1), m.entry), boxed("stts", m.stts), boxed("stsc", m.stsc), m.stsz, stco)
		var edts []byte
		if m.elst != nil {
			edts = boxed("edts", boxed("elst", m.elst))
		}
		trak := boxed("trak", boxed("tkhd", words(7, 0, 0, 1), make([]byte, 68)), edts,
			boxed("mdia", m.mdhd, m.hdlr, boxed("minf", boxed("smhd", make([]byte, 8)), table)))
		return boxed("moov", m.mvhd, trak, m.mvex)
	}
	data := boxed("mdat", make([]byte, m.data))
	head := uint32(len(m.start) + 8)
	if m.front {
		return bytes.Join([][]byte{m.start, index(head + uint32(len(index(0)))), data, m.behind}, nil)
	}
	return bytes.Join([][]byte{m.start, data, index(head), m.behind}, nil)
}

func TestMP4Odd(t *testing.T) {
	long := func(m *mp4Maker) []byte { // media data with a size of 64 bits
		b := m.bytes()
		mdat := bytes.Index(b, []byte("mdat"))
		wide := append(append(words(1), "mdat"...), be.AppendUint64(nil, uint64(m.data+16))...)
		return bytes.Join([][]byte{b[:mdat-4], wide, b[mdat+4:]}, nil)
	}
	open := func(m *mp4Maker) []byte {
		m.front = true
		b := m.bytes()
		be.PutUint32(b[bytes.Index(b, []byte("mdat"))-4:], 0)
		return b
	}
	plain := (*mp4Maker).bytes
	ms := func(samples ...uint32) []byte { return words(samples...) }
	offsets := func(b ...uint64) (x []byte) {
		x = words(0, uint32(len(b)))
		for _, o := range b {
			x = be.AppendUint64(x, o)
		}
		return boxed("co64", x)
	}
	lpcm := entry("lpcm", 2, 3, 16, 1, words(72, 0x408f4000, 0, 1, 0x7f000000, 16, 12, 2, 1))
	cases := []struct {
		name    string
		change  func(m *mp4Maker)
		make    func(m *mp4Maker) []byte
		seconds float64
		claimed float64
		method  string
	}{
		{"plain", func(m *mp4Maker) {}, plain, 2, 0, "header"},
		{"index in front", func(m *mp4Maker) { m.front = true }, plain, 2, 0, "header"},
		{"no ftyp", func(m *mp4Maker) { m.start = nil }, plain, 2, 0, "header"},
		{"wide in front", func(m *mp4Maker) { m.start = boxed("wide") }, plain, 2, 0, "header"},
		{"64-bit media data", func(m *mp4Maker) { m.stco = boxed("stco", words(0, 4, 36, 1036, 2036, 3036)) }, long, 2, 0, "header"},
		{"media data to the end", func(m *mp4Maker) {}, open, 2, 0, "header"},
		{"64-bit headers", func(m *mp4Maker) {
			m.mvhd = boxed("mvhd", words(1<<24, 0, 0, 0, 0, 600, 0, 1200), make([]byte, 80))
			m.mdhd = boxed("mdhd", words(1<<24, 0, 0, 0, 0, makerRate, 0, 2000, 0))
			m.elst = words(1<<24, 1, 0, 600, 0, 250, 1<<16)
			m.stco = offsets(28, 1028, 2028, 3028)
		}, plain, 1, 0, "header"},
		{"edit", func(m *mp4Maker) { m.elst = words(0, 1, 300, 250, 1<<16) }, plain, 0.5, 0, "header"},
		{"edit to the end", func(m *mp4Maker) { m.elst = words(0, 1, 0, 250, 1<<16) }, plain, 1.75, 0, "header"},
		{"edit longer than the media", func(m *mp4Maker) { m.elst = words(0, 1, 1200, 250, 1<<16) }, plain, 1.75, 0, "header"},
		{"edit off by less than the clock tells", func(m *mp4Maker) { m.stts, m.elst = words(0, 1, 1999, 1), words(0, 1, 1199, 0, 1<<16) }, plain, 1.999, 0, "header"},
		{"late start", func(m *mp4Maker) { m.elst = words(0, 2, 600, 0xffffffff, 1<<16, 600, 0, 1<<16) }, plain, 1, 0, "header"},
		{"three edits", func(m *mp4Maker) { m.elst = words(0, 3, 60, 0, 1<<16, 60, 500, 1<<16, 600, 1900, 1<<16) }, plain, 0.3, 0, "header"},
		{"no chunk behind the file", func(m *mp4Maker) { m.data = 2500 }, func(m *mp4Maker) []byte { m.front = true; return m.bytes() }, 1.25, 2, "walked"},
		{"chunks in another order", func(m *mp4Maker) { m.stco = boxed("stco", words(0, 4, 3028, 28, 1028, 2028)) }, plain, 2, 0, "header"},
		{"two runs of chunks", func(m *mp4Maker) { m.stsc = words(0, 2, 1, 500, 1, 3, 100, 1) }, plain, 1.2, 2, "header"},
		{"fewer sizes than durations", func(m *mp4Maker) { m.stsz = boxed("stsz", words(0, 2, 700)) }, plain, 0.7, 2, "header"},
		{"durations one by one", func(m *mp4Maker) {
			m.stts = words(0, 3, 500, 1, 500, 2, 1000, 1)
			m.mdhd = boxed("mdhd", words(0, 0, 0, makerRate, 2500, 0))
		}, plain, 2.5, 0, "header"},
		{"header claims more", func(m *mp4Maker) { m.mdhd = boxed("mdhd", words(0, 0, 0, makerRate, 90_000, 0)) }, plain, 2, 90, "header"},
		{"header knows nothing", func(m *mp4Maker) { m.mdhd = boxed("mdhd", words(0, 0, 0, makerRate, 0xffffffff, 0)) }, plain, 2, 0, "header"},
		{"sizes of 1 in QuickTime", func(m *mp4Maker) { m.stsz = boxed("stsz", words(0, 1, 2000)) }, plain, 2, 0, "header"},
		{"sizes of 1 in QuickTime, cut", func(m *mp4Maker) { m.front, m.data, m.stsz = true, 1500, boxed("stsz", words(0, 1, 2000)) }, plain, 0.75, 2, "walked"},
		{"fragments to come, cut before them", func(m *mp4Maker) { m.front, m.data, m.mvex = true, 2500, boxed("mvex") }, plain, 1.25, 2, "walked"},
		{"garbage behind", func(m *mp4Maker) { m.front, m.behind = true, bytes.Repeat([]byte{7}, 100) }, plain, 2, 0, "header"},
		{"QuickTime version 2", func(m *mp4Maker) { m.entry = lpcm }, plain, 2, 0, "header"},
		{"sound in a clock of its own", func(m *mp4Maker) {
			m.mdhd, m.stts = boxed("mdhd", words(0, 0, 0, 90_000, 180_000, 0)), ms(0, 1, 2000, 90)
		}, plain, 2, 0, "header"},
	}
	clips := map[string]audiotest.Clip{}
	for _, c := range cases {
		m := maker()
		c.change(m)
		clips[c.name] = audiotest.Clip{B: c.make(m), Seconds: c.seconds, Claimed: c.claimed, Codec: "pcm_s16le", Method: c.method}
	}
	audiotest.Measured(t, clips)
}

func TestMP4Refused(t *testing.T) {
	edit := func(change func(m *mp4Maker)) []byte { m := maker(); change(m); return m.bytes() }
	huge := make([]byte, 0, 100)
	huge = append(huge, boxed("ftyp", []byte("M4A \x00\x00\x02\x00"))...)
	huge = append(append(huge, "\x00\x00\x00\x01moov\xff\xff\xff\xff\xff\xff\xff\xff"...), make([]byte, 40)...)
	audiotest.Refuses(t, "clip.m4a", []audiotest.Refusal{
		{Name: "nothing but ftyp", B: maker().start, Code: fault.Corrupt, Text: "no moov box"},
		{Name: "index of 2^64 bytes", B: huge, Code: fault.Corrupt, Text: "ends inside its moov box"},
		{Name: "64-bit size below its own head", B: append(bytes.Clone(maker().start), "\x00\x00\x00\x01moov\x00\x00\x00\x00\x00\x00\x00\x0f"...), Code: fault.Corrupt, Text: "no moov box"},
		{Name: "too many boxes", B: append(bytes.Clone(maker().start), bytes.Repeat([]byte("\x00\x00\x00\x08free"), media.MaxSteps/media.StepsHead+1)...), Code: fault.Unsupported, Text: "more parts than"},
		{Name: "film without sound", B: edit(func(m *mp4Maker) { m.hdlr = boxed("hdlr", words(0, 0), []byte("vide"), make([]byte, 13)) }), Code: fault.Corrupt, Text: "holds no audio track"},
		{Name: "no time scale", B: edit(func(m *mp4Maker) { m.mdhd = boxed("mdhd", words(0, 0, 0, 0, 9, 0)) }), Code: fault.Corrupt, Text: "without a time scale"},
		{Name: "unknown codec", B: edit(func(m *mp4Maker) { m.entry = entry("abcd", 0, 1, 16, 1000) }), Code: fault.Unsupported, Text: `unknown codec ("abcd")`},
		{Name: "encrypted", B: edit(func(m *mp4Maker) { m.entry = entry("enca", 0, 1, 16, 1000) }), Code: fault.Unsupported, Text: "is encrypted"},
		{Name: "short description", B: edit(func(m *mp4Maker) { m.entry = boxed("mp4a", make([]byte, 20)) }), Code: fault.Corrupt, Text: "ends inside its sample description"},
		{Name: "no description", B: edit(func(m *mp4Maker) { m.entry = nil }), Code: fault.Corrupt, Text: "does not name its codec"},
		{Name: "compact sizes", B: edit(func(m *mp4Maker) { m.stsz = boxed("stz2", words(0, 4, 4), []byte{0x5a, 0xf1}) }), Code: fault.Unsupported, Text: "stz2"},
		{Name: "no channels", B: edit(func(m *mp4Maker) { m.entry = entry("sowt", 0, 0, 16, 1000) }), Code: fault.Corrupt, Text: "0 channels"},
		{Name: "no samples", B: edit(func(m *mp4Maker) { m.stsz = boxed("stsz", words(0, 2, 0)) }), Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "only an empty edit", B: edit(func(m *mp4Maker) { m.elst = words(0, 1, 600, 0xffffffff, 1<<16) }), Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "endless samples", B: edit(func(m *mp4Maker) {
			m.stts, m.stsz, m.stsc = words(0, 1, 0xffffffff, 0xffffffff), boxed("stsz", words(0, 2, 0xffffffff)), words(0, 1, 1, 0xffffffff, 1)
		}), Code: fault.Corrupt, Text: "2^53 ticks"},
		{Name: "chunks backwards", B: edit(func(m *mp4Maker) { m.stsc = words(0, 2, 3, 500, 1, 1, 500, 1) }), Code: fault.Corrupt, Text: "stsc"},
		{Name: "chunk 0", B: edit(func(m *mp4Maker) { m.stsc = words(0, 1, 0, 500, 1) }), Code: fault.Corrupt, Text: "stsc"},
		{Name: "all sound elsewhere", B: edit(func(m *mp4Maker) { m.stco = boxed("stco", words(0, 4, 1<<30, 1<<30, 1<<30, 1<<30)) }), Code: fault.Corrupt, Text: "holds no audio, though its header claims 2.000 s"},
		{Name: "compressed index", B: bytes.Join([][]byte{maker().start, boxed("moov", boxed("cmov"))}, nil), Code: fault.Unsupported, Text: "compressed index"},
	})
}

func TestMP4PCMNames(t *testing.T) {
	cases := []struct {
		kind string
		bits int
		pcm  pcmFormat
		want string
	}{
		{"sowt", 16, pcmFormat{}, "pcm_s16le"}, {"twos", 16, pcmFormat{}, "pcm_s16be"}, {"twos", 8, pcmFormat{}, "pcm_s8"}, {"raw ", 8, pcmFormat{}, "pcm_u8"},
		{"in24", 16, pcmFormat{}, "pcm_s24be"}, {"in24", 16, pcmFormat{little: true}, "pcm_s24le"}, {"in32", 16, pcmFormat{}, "pcm_s32be"},
		{"fl32", 16, pcmFormat{little: true}, "pcm_f32le"}, {"fl64", 16, pcmFormat{}, "pcm_f64be"}, {"ipcm", 24, pcmFormat{little: true}, "pcm_s24le"},
		{"fpcm", 32, pcmFormat{}, "pcm_f32be"}, {"lpcm", 32, pcmFormat{explicit: true, float: true}, "pcm_f32le"}, {"lpcm", 20, pcmFormat{explicit: true, signed: true, big: true}, "pcm_s24be"},
	}
	for _, c := range cases {
		got, bits := c.pcm.name(c.kind, c.bits)
		assert.Equal(t, c.want, got, c.kind)
		assert.Zero(t, bits%8, c.kind)
	}
}

func FuzzMP4(f *testing.F) {
	for _, name := range []string{"front.m4a", "fragments.m4a", "fragments_opus.mp4", "sbr_itunes_44k.m4a", "ima4_8k.mov", "flac_0.3s.mp4", "amrwb.3gp"} {
		f.Add(audiotest.Fixture(f, name)[4:])
	}
	f.Add(maker().bytes()[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		kinds := [...]string{"ftyp", "moov", "wide"}
		kind := kinds[len(b)%len(kinds)]
		audiotest.Sane(t, append(append(binary.BigEndian.AppendUint32(nil, 8), kind...), b...))
		if len(b) > 4 {
			audiotest.Sane(t, append([]byte{0, 0, 0, b[0]}, b...))
		}
	})
}
