package audio

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	goaudio "github.com/go-audio/audio"
	"github.com/go-audio/wav"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Format tags beside those of plain samples.
const (
	tagADPCM = 2
	tagIMA   = 0x11
	tagGSM   = 0x31
)

// wavBuilder puts a RIFF file together chunk by chunk.
type wavBuilder struct{ b []byte }

func riff(id string) *wavBuilder {
	return &wavBuilder{append([]byte(id), "\xff\xff\xff\xffWAVE"...)}
}

// chunk adds a chunk with its padding.
func (w *wavBuilder) chunk(id string, body []byte) *wavBuilder {
	w.claim(id, uint32(len(body)), body)
	if len(body)%2 == 1 {
		w.b = append(w.b, 0)
	}
	return w
}

// claim adds a chunk whose size field says something of its own.
func (w *wavBuilder) claim(id string, size uint32, body []byte) *wavBuilder {
	w.b = append(le.AppendUint32(append(w.b, id...), size), body...)
	return w
}

func (w *wavBuilder) fmt(tag, channels, rate, align, bits int, extra ...byte) *wavBuilder {
	return w.chunk("fmt ", append(fmtBody(tag, channels, rate, align, bits), extra...))
}

func fmtBody(tag, channels, rate, align, bits int) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(tag))
	b = le.AppendUint16(b, uint16(channels))
	b = le.AppendUint32(b, uint32(rate))
	b = le.AppendUint32(b, uint32(rate*align))
	b = le.AppendUint16(b, uint16(align))
	return le.AppendUint16(b, uint16(bits))
}

func extensible(tag int) []byte {
	b := []byte{22, 0, 16, 0, 4, 0, 0, 0}
	b = le.AppendUint16(b, uint16(tag))
	return append(b, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"...)
}

func ds64(data uint64) []byte {
	b := le.AppendUint64(make([]byte, 8), data)
	return append(b, make([]byte, 12)...)
}

func pcm16() *wavBuilder { return riff("RIFF").fmt(tagPCM, 1, 16000, 2, 16) }

func second() []byte { return make([]byte, 32000) }

func TestWAVLength(t *testing.T) {
	ima := []byte{2, 0, 0xf9, 0x01} // 505 samples a block
	cases := []struct {
		name    string
		file    *wavBuilder
		seconds float64
		claimed float64 // 0: none
		codec   string
	}{
		{"plain", pcm16().chunk("data", second()), 1, 0, "pcm_s16le"},
		{"8 bits", riff("RIFF").fmt(tagPCM, 1, 8000, 1, 8).chunk("data", make([]byte, 8001)), 8001.0 / 8000, 0, "pcm_u8"},
		{"24 bits stereo", riff("RIFF").fmt(tagPCM, 2, 48000, 6, 24).chunk("data", make([]byte, 48000*6)), 1, 0, "pcm_s24le"},
		{"24 bits in 4 bytes", riff("RIFF").fmt(tagPCM, 1, 1000, 4, 24).chunk("data", make([]byte, 4000)), 1, 0, "pcm_s32le"},
		{"32 bits", riff("RIFF").fmt(tagPCM, 1, 1000, 4, 32).chunk("data", make([]byte, 2000)), 0.5, 0, "pcm_s32le"},
		{"float", riff("RIFF").fmt(tagFloat, 1, 1000, 4, 32, 0, 0).chunk("fact", []byte{9, 0, 0, 0}).chunk("data", make([]byte, 4000)), 1, 0, "pcm_f32le"},
		{"double", riff("RIFF").fmt(tagFloat, 1, 1000, 8, 64).chunk("data", make([]byte, 8000)), 1, 0, "pcm_f64le"},
		{"A-law", riff("RIFF").fmt(tagALaw, 1, 8000, 1, 8).chunk("data", make([]byte, 4000)), 0.5, 0, "pcm_alaw"},
		{"mu-law", riff("RIFF").fmt(tagMuLaw, 2, 8000, 2, 8).chunk("data", make([]byte, 4000)), 0.25, 0, "pcm_mulaw"},
		{"extensible", riff("RIFF").fmt(tagExtensible, 1, 16000, 2, 16, extensible(tagPCM)...).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"extensible float", riff("RIFF").fmt(tagExtensible, 1, 8000, 4, 32, extensible(tagFloat)...).chunk("data", second()), 1, 0, "pcm_f32le"},
		{"long LIST and odd JUNK before data", pcm16().chunk("LIST", make([]byte, 320001)).chunk("JUNK", make([]byte, 5)).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"JUNK before fmt", riff("RIFF").chunk("JUNK", make([]byte, 28)).fmt(tagPCM, 1, 16000, 2, 16).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"LIST after data", pcm16().chunk("data", second()).chunk("LIST", make([]byte, 5000)), 1, 0, "pcm_s16le"},
		{"piped by FFmpeg", pcm16().claim("data", 0xffffffff, second()), 1, 0, "pcm_s16le"},
		{"piped by espeak-ng", pcm16().claim("data", 0x7ffff000, second()), 1, 0, "pcm_s16le"},
		{"never closed", pcm16().claim("data", 0, second()), 1, 0, "pcm_s16le"},
		{"RF64", riff("RF64").chunk("ds64", ds64(32000)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, second()).chunk("LIST", make([]byte, 64)), 1, 0, "pcm_s16le"},
		{"BW64", riff("BW64").chunk("ds64", ds64(32000)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, second()), 1, 0, "pcm_s16le"},
		{"RF64 never closed", riff("RF64").chunk("ds64", ds64(0)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, second()), 1, 0, "pcm_s16le"},
		{"RF64 cut", riff("RF64").chunk("ds64", ds64(10<<30)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, second()), 1, (10 << 30) / 32000.0, "pcm_s16le"},
		{"cut", pcm16().claim("data", 320000, second()), 1, 10, "pcm_s16le"},
		{"cut inside a sample", pcm16().claim("data", 64000, make([]byte, 32001)), 1, 2, "pcm_s16le"},
		{"IMA ADPCM, fact inside the last block", riff("RIFF").fmt(tagIMA, 1, 1000, 256, 4, ima...).chunk("fact", []byte{0xe8, 3, 0, 0}).chunk("data", make([]byte, 512)), 1.01, 0, "adpcm_ima_wav"},
		{"IMA ADPCM, fact far off", riff("RIFF").fmt(tagIMA, 1, 1000, 256, 4, ima...).chunk("fact", []byte{0xf4, 1, 0, 0}).chunk("data", make([]byte, 512)), 1.01, 0.5, "adpcm_ima_wav"},
		{"IMA ADPCM stereo, fact over both channels", riff("RIFF").fmt(tagIMA, 2, 1000, 512, 4, ima...).chunk("fact", []byte{0xf2, 3, 0, 0}).chunk("data", make([]byte, 512)), 0.505, 0, "adpcm_ima_wav"},
		{"IMA ADPCM without fact", riff("RIFF").fmt(tagIMA, 1, 1000, 256, 4, ima...).chunk("data", make([]byte, 512)), 1.01, 0, "adpcm_ima_wav"},
		{"IMA ADPCM, half a block", riff("RIFF").fmt(tagIMA, 1, 1000, 256, 4, ima...).chunk("data", make([]byte, 256+128)), 0.505 + 0.249, 0, "adpcm_ima_wav"},
		{"IMA ADPCM cut", riff("RIFF").fmt(tagIMA, 1, 1000, 256, 4, ima...).chunk("fact", []byte{0xe8, 3, 0, 0}).claim("data", 512, make([]byte, 256)), 0.505, 1.01, "adpcm_ima_wav"},
		{"IMA ADPCM of 3 bits", riff("RIFF").fmt(tagIMA, 1, 1000, 256, 3, 2, 0, 0, 0).chunk("data", make([]byte, 2560)), 6.73, 0, "adpcm_ima_wav"},
		{"MS ADPCM", riff("RIFF").fmt(tagADPCM, 1, 1000, 256, 4).chunk("data", make([]byte, 512)), 1, 0, "adpcm_ms"},
		{"MS ADPCM, half a block", riff("RIFF").fmt(tagADPCM, 1, 1000, 256, 4).chunk("data", make([]byte, 256+131)), 0.75, 0, "adpcm_ms"},
		{"OKI ADPCM", riff("RIFF").fmt(0x10, 1, 8000, 1, 4).chunk("data", make([]byte, 4000)), 1, 0, "adpcm_ima_oki"},
		{"G.729", riff("RIFF").fmt(0x83, 1, 8000, 10, 0).chunk("data", make([]byte, 1009)), 1, 0, "g729"},
		{"GSM, half a block", riff("RIFF").fmt(tagGSM, 1, 8000, 65, 0, 2, 0, 0x40, 1).chunk("data", make([]byte, 65*25+33)), 1, 0, "gsm_ms"},
		{"64 bits", riff("RIFF").fmt(tagPCM, 1, 1000, 8, 64).chunk("data", make([]byte, 8000)), 1, 0, "pcm_s64le"},
		{"20 bits in 3 bytes", riff("RIFF").fmt(tagPCM, 1, 1000, 3, 20).chunk("data", make([]byte, 3000)), 1, 0, "pcm_s24le"},
		{"no bits", riff("RIFF").fmt(tagPCM, 2, 1000, 4, 0).chunk("data", make([]byte, 4000)), 1, 0, "pcm_s16le"},
		{"A-law that says 16 bits", riff("RIFF").fmt(tagALaw, 1, 8000, 1, 16).chunk("data", make([]byte, 8000)), 1, 0, "pcm_alaw"},
		{"block size 0", riff("RIFF").fmt(tagPCM, 1, 16000, 0, 16).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"block size of one channel for two", riff("RIFF").fmt(tagPCM, 2, 16000, 2, 16).chunk("data", second()), 0.5, 0, "pcm_s16le"},
		{"block size too large", riff("RIFF").fmt(tagPCM, 1, 16000, 8, 16).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"two fmt chunks", pcm16().fmt(tagPCM, 1, 8000, 2, 16).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"fmt behind data", riff("RIFF").chunk("data", second()).fmt(tagPCM, 1, 16000, 2, 16), 1, 0, "pcm_s16le"},
		{"two data chunks", pcm16().chunk("data", second()).chunk("LIST", make([]byte, 8)).chunk("data", second()[:16000]), 1, 1.5, "pcm_s16le"},
		{"an empty data chunk first", pcm16().chunk("data", nil).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"no padding behind an odd LIST", pcm16().claim("LIST", 5, make([]byte, 5)).chunk("data", second()), 1, 0, "pcm_s16le"},
		{"garbage behind the data", pcm16().chunk("data", second()).claim("\x00\x01\x02\x03", 77, second()), 1, 0, "pcm_s16le"},
		{"piped by lame", pcm16().claim("data", 0xffffffff-36, second()), 1, 0, "pcm_s16le"},
		{"piped by arecord", pcm16().claim("data", 0x80000000, second()), 1, 0, "pcm_s16le"},
		{"3 GiB, cut", pcm16().claim("data", 0xc0000000, second()), 1, 0xc0000000 / 32000.0, "pcm_s16le"},
		{"RIFF with ds64", riff("RIFF").chunk("ds64", ds64(32000)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, second()).chunk("LIST", make([]byte, 64)), 1, 0, "pcm_s16le"},
		{"RF64 of a size beyond belief", riff("RF64").chunk("ds64", ds64(1<<63)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, second()), 1, 0, "pcm_s16le"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			info, err := Bytes(c.name, c.file.b)
			require.NoError(t, err)
			assert.InDelta(t, c.seconds, info.DurationS, 1e-9)
			assert.Equal(t, c.codec, info.Codec)
			if c.claimed == 0 {
				assert.Nil(t, info.ClaimedS)
			} else if assert.NotNil(t, info.ClaimedS) {
				assert.InDelta(t, c.claimed, *info.ClaimedS, 1e-9)
			}
			onDisk, size, err := File(write(t, c.file.b))
			require.NoError(t, err)
			assert.Equal(t, info, onDisk, "the same from a file")
			assert.EqualValues(t, len(c.file.b), size)
		})
	}
}

func TestWAVRefused(t *testing.T) {
	manyChunks := riff("RIFF")
	for range maxChunks + 1 {
		manyChunks.chunk("JUNK", nil)
	}
	cases := []struct {
		name string
		file *wavBuilder
		code fault.Code
		text string
	}{
		{"empty data", pcm16().chunk("data", nil), fault.Corrupt, "holds no audio"},
		{"empty data, then LIST", pcm16().chunk("data", nil).chunk("LIST", make([]byte, 40)), fault.Corrupt, "holds no audio"},
		{"header only, claims 1 s", pcm16().claim("data", 32000, nil), fault.Corrupt, "holds no audio, though its header claims 1.000 s"},
		{"less than one sample", pcm16().chunk("data", []byte{1}), fault.Corrupt, "holds no audio"},
		{"no data chunk", pcm16(), fault.Corrupt, "ends before its data chunk"},
		{"data before fmt", riff("RIFF").chunk("data", second()), fault.Corrupt, "no fmt chunk with its data"},
		{"short fmt", riff("RIFF").chunk("fmt ", make([]byte, 14)), fault.Corrupt, "fmt chunk of 14 bytes"},
		{"rate 0", riff("RIFF").fmt(tagPCM, 1, 0, 2, 16).chunk("data", second()), fault.Corrupt, "sample rate of 0 Hz"},
		{"channels 0", riff("RIFF").fmt(tagPCM, 0, 16000, 2, 16).chunk("data", second()), fault.Corrupt, "0 channels"},
		{"no bits and no block size", riff("RIFF").fmt(tagPCM, 1, 16000, 0, 0).chunk("data", second()), fault.Corrupt, "samples of 0 bits"},
		{"56 bits", riff("RIFF").fmt(tagPCM, 1, 16000, 7, 56).chunk("data", second()), fault.Corrupt, "samples of 56 bits and blocks of 7 bytes"},
		{"extensible without a codec", riff("RIFF").fmt(tagExtensible, 1, 16000, 2, 16, 0, 0).chunk("data", second()), fault.Corrupt, "too short to name its codec"},
		{"wave list", pcm16().chunk("LIST", []byte("wavldata")).chunk("data", second()), fault.Unsupported, "list of waves"},
		{"1-bit G.726", riff("RIFF").fmt(0x45, 1, 8000, 1, 1).chunk("data", second()), fault.Corrupt, "1 bits"},
		{"stereo GSM", riff("RIFF").fmt(tagGSM, 2, 8000, 65, 0).chunk("data", second()), fault.Corrupt, "2 channels instead of one"},
		{"ADPCM block too short", riff("RIFF").fmt(tagIMA, 2, 16000, 4, 4).chunk("data", second()), fault.Corrupt, "shorter than their own head"},
		{"7-bit ADPCM", riff("RIFF").fmt(tagIMA, 1, 16000, 256, 7).chunk("data", second()), fault.Unsupported, "7 bits"},
		{"no MP3 inside", riff("RIFF").fmt(0x55, 1, 16000, 1, 0).chunk("data", second()), fault.Corrupt, "holds no frames"},
		{"WMA inside", riff("RIFF").fmt(0x161, 1, 16000, 1, 0).chunk("data", second()), fault.Unsupported, "WMA inside"},
		{"unknown codec", riff("RIFF").fmt(0x1234, 1, 16000, 1, 0).chunk("data", second()), fault.Unsupported, "0x1234"},
		{"endless small chunks", manyChunks, fault.Corrupt, "more than 1024 chunks"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Bytes("clip.wav", c.file.b)
			refusedAs(t, err, c.code, "clip.wav: ", c.text)
		})
	}
}

func TestWAVFixtures(t *testing.T) {
	agree(t, []decoded{
		{"short.wav", 801, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}, 44, 0.5},
		{"short_rf64.wav", 801, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "header"}, 80, 0.5},
		{"piped_rf64.wav", 801, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16le", Method: "tail"}, 80, 0.5},
		{"short_rifx.wav", 801, Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "pcm_s16be", Method: "header"}, 44, 0.5},
		{"short_rifx_float.wav", 801, Info{SampleRate: 16000, Channels: 1, Bits: 32, Codec: "pcm_f32be", Method: "header"}, 58, 0.25},
		{"short_s64.wav", 801, Info{SampleRate: 16000, Channels: 1, Bits: 64, Codec: "pcm_s64le", Method: "header"}, 44, 0.125},
		{"short_ima.wav", 1010, Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ima_wav", Method: "header"}, 60, 2},
		{"short_yamaha.wav", 2048, Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_yamaha", Method: "header"}, 44, 2},
		{"short_g726_3_8k.wav", 402, Info{SampleRate: 8000, Channels: 1, Bits: 3, Codec: "adpcm_g726", Method: "header"}, 44, 8.0 / 3},
		{"short_g722_8k.wav", 402, Info{SampleRate: 8000, Channels: 1, Bits: 4, Codec: "adpcm_g722", Method: "header"}, 44, 2},
		{"gsm.wav", 17600, Info{SampleRate: 16000, Channels: 1, Codec: "gsm_ms", Method: "header"}, 60, 320.0 / 65},
		{"adpcm_ms.wav", 18000, Info{SampleRate: 16000, Channels: 1, Bits: 4, Codec: "adpcm_ms", Method: "header"}, 90, 2},
	})
}

// TestWAVWithMPEG reads frames of MPEG audio between other chunks; the frames tell more than fmt.
func TestWAVWithMPEG(t *testing.T) {
	info, err := Bytes("x", fixture(t, "short_mp3_8k.wav"))
	require.NoError(t, err)
	assert.Nil(t, info.ClaimedS)
	assert.Equal(t, []any{1728.0, 8000, 1, "mp3", "walked"}, []any{info.DurationS * 8000, info.SampleRate, info.Channels, info.Codec, info.Method})

	frames := fixture(t, "short_mp3_8k.wav")[104:]
	tail := append([]byte("TAG"), make([]byte, 400)...)
	whole := riff("RIFF").fmt(0x55, 2, 44100, 1, 0).chunk("data", frames).chunk("LIST", append(frames, tail...))
	info, err = Bytes("x", whole.b)
	require.NoError(t, err)
	assert.Equal(t, []any{0.216, 8000, 1}, []any{info.DurationS, info.SampleRate, info.Channels}, "frames behind the data do not count")

	for n := range frames {
		info, err := Bytes("x", riff("RIFF").fmt(0x50, 1, 8000, 1, 0).claim("data", uint32(len(frames)), frames[:n]).b)
		if err == nil {
			assert.LessOrEqual(t, info.DurationS, 0.216)
			assert.NotNil(t, info.ClaimedS)
		}
	}
}

// TestWAVLarge reads files of more than 4 GiB, of which the disk holds the header alone.
func TestWAVLarge(t *testing.T) {
	const size = 10 << 30
	for name, c := range map[string]struct {
		head    *wavBuilder
		claimed float64
	}{
		"RF64":                    {riff("RF64").chunk("ds64", ds64(size)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, nil), 0},
		"RF64 that claims double": {riff("RF64").chunk("ds64", ds64(2*size)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, nil), 2 * size / 32000.0},
		"RIFF of unknown size":    {pcm16().claim("data", 0xffffffff, nil), 0},
		"sox's unknown size":      {pcm16().claim("data", 0x7ffff000, nil), 0},
		"AIFF of unknown size":    {&wavBuilder{form("AIFF", comm(1, 0, 16, ""), ssndClaim(0x7f000008, nil))}, 0},
		"Wave64":                  {&wavBuilder{wave64(24+size, nil)[:104]}, 0},
		"Core Audio":              {&wavBuilder{core(desc(16000, "lpcm", 2, 2, 1, 1, 16), cafData(4 + size)[:16])}, 0},
	} {
		path := write(t, c.head.b)
		require.NoError(t, os.Truncate(path, int64(len(c.head.b)+size)))
		info, n, err := File(path)
		require.NoError(t, err, name)
		assert.EqualValues(t, len(c.head.b)+size, n)
		assert.Equal(t, size/32000.0, info.DurationS, name)
		if c.claimed == 0 {
			assert.Nil(t, info.ClaimedS, name)
		} else if assert.NotNil(t, info.ClaimedS, name) {
			assert.Equal(t, c.claimed, *info.ClaimedS, name)
		}
	}
}

// TestWAVAgreesWithDecoder compares durations of plain PCM with go-audio/wav as encoder and as decoder.
func TestWAVAgreesWithDecoder(t *testing.T) {
	for _, bits := range []int{8, 16, 24, 32} {
		for _, channels := range []int{1, 2} {
			path := filepath.Join(t.TempDir(), "x.wav")
			f, err := os.Create(path)
			require.NoError(t, err)
			e := wav.NewEncoder(f, 22050, bits, channels, 1)
			format := &goaudio.Format{NumChannels: channels, SampleRate: 22050}
			require.NoError(t, e.Write(&goaudio.IntBuffer{Format: format, Data: make([]int, 12345*channels), SourceBitDepth: bits}))
			require.NoError(t, e.Close())
			require.NoError(t, f.Close())

			b, err := os.ReadFile(path)
			require.NoError(t, err)
			buffer, err := wav.NewDecoder(bytes.NewReader(b)).FullPCMBuffer()
			require.NoError(t, err)
			info, _, err := File(path)
			require.NoError(t, err)
			assert.InDelta(t, float64(buffer.NumFrames())/22050, info.DurationS, 1e-9)
			assert.Equal(t, []int{22050, channels, bits}, []int{info.SampleRate, info.Channels, info.Bits})
		}
	}
}

func FuzzWAV(f *testing.F) {
	f.Add(pcm16().chunk("data", second()[:64]).b)
	f.Add(riff("RF64").chunk("ds64", ds64(64)).fmt(tagPCM, 1, 16000, 2, 16).claim("data", 0xffffffff, second()[:64]).b)
	f.Add(riff("RIFF").fmt(tagIMA, 1, 1000, 256, 4, 2, 0, 0xf9, 1).chunk("fact", []byte{9, 0, 0, 0}).chunk("data", make([]byte, 512)).b)
	f.Add(fixture(f, "short_rifx.wav"))
	f.Add(fixture(f, "short_g726_3_8k.wav"))
	f.Add(fixture(f, "short_mp3_8k.wav"))
	f.Add(riff("RIFF").fmt(tagExtensible, 1, 16000, 2, 16, extensible(tagPCM)...).claim("data", 0, second()[:9]).b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.HasPrefix(b, []byte("RIFX")) || bytes.HasPrefix(b, []byte("RF64")) {
			sane(t, b)
		}
		sane(t, append([]byte("RIFF\x00\x00\x00\x00WAVE"), b[min(12, len(b)):]...))
	})
}
