package audio

import (
	"bytes"
	"io"
	"testing"

	"github.com/mewkiz/flac"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// decodable counts the samples that mewkiz/flac decodes before an error or the end.
func decodable(t *testing.T, b []byte) (samples int64) {
	t.Helper()
	stream, err := flac.New(bytes.NewReader(b))
	require.NoError(t, err)
	for {
		frame, err := stream.ParseNext()
		if err != nil {
			return samples
		}
		samples += int64(frame.BlockSize)
	}
}

// withTotal sets the 36 bits of total_samples.
func withTotal(b []byte, total uint64) []byte {
	b = bytes.Clone(b)
	b[21] = b[21]&0xf0 | byte(total>>32)
	for i := range 4 {
		b[22+i] = byte(total >> (24 - 8*i))
	}
	return b
}

func TestFLACCutCountsWhatADecoderPlays(t *testing.T) {
	for _, name := range []string{"tone.flac", "unknown_length.flac", "ffmpeg_piped_stereo_44k.flac"} {
		whole := fixture(t, name)
		_, held, err := samplesOf(whole)
		require.NoError(t, err)
		require.Equal(t, held, decodable(t, whole))
		for _, keep := range []int{len(whole) - 1, len(whole) - 700, len(whole) * 3 / 4, len(whole) / 2, len(whole) * 2 / 5} {
			cut := whole[:keep]
			info, held, err := samplesOf(cut)
			want := decodable(t, cut)
			if want == 0 {
				refusedAs(t, err, fault.Corrupt, "x: ", "holds no audio")
				continue
			}
			require.NoError(t, err, "%s cut to %d", name, keep)
			assert.Equal(t, want, held, "%s cut to %d", name, keep)
			assert.Equal(t, "tail", info.Method)
			if name == "tone.flac" && assert.NotNil(t, info.ClaimedS) {
				assert.InDelta(t, 1.1, *info.ClaimedS, 1e-9)
			}
		}
	}
}

// samplesOf also gives the duration in samples.
func samplesOf(b []byte) (Info, int64, error) {
	info, err := Bytes("x", b)
	return info, int64(info.DurationS*float64(info.SampleRate) + 0.5), err
}

func TestFLACVariants(t *testing.T) {
	tone := fixture(t, "tone.flac")
	id3 := append([]byte("ID3\x03\x00\x00\x00\x00\x4e\x10"), make([]byte, 0x4e<<7+0x10)...) // longer than the head that is read
	tag := append([]byte("TAG"), make([]byte, 125)...)
	ape := append(append([]byte("some items"), "APETAGEX\xd0\x07\x00\x00\x2a\x00\x00\x00"...), make([]byte, 16)...)
	cases := map[string][]byte{
		"ID3v2 in front":  append(bytes.Clone(id3), tone...),
		"ID3v1 behind":    append(bytes.Clone(tone), tag...),
		"APE tag behind":  append(bytes.Clone(tone), ape...),
		"zeros behind":    append(bytes.Clone(tone), make([]byte, 3000)...),
		"a megabyte more": append(bytes.Clone(tone), make([]byte, 1<<20)...),
		"far too much":    append(bytes.Clone(tone), make([]byte, 5<<20)...),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			info, samples, err := samplesOf(b)
			require.NoError(t, err)
			assert.EqualValues(t, 17600, samples)
			assert.Nil(t, info.ClaimedS)
		})
	}
}

func TestFLACRefused(t *testing.T) {
	tone := fixture(t, "tone.flac")
	edit := func(at int, b byte) []byte { c := bytes.Clone(tone); c[at] = b; return c }
	noRate := bytes.Clone(tone)
	noRate[18], noRate[19], noRate[20] = 0, 0, noRate[20]&0x0f
	endless := append([]byte(nil), tone[:42]...)
	for range maxMetadataBlocks + 1 {
		endless = append(endless, 1, 0, 0, 0)
	}
	cases := []struct {
		name string
		b    []byte
		code fault.Code
		text string
	}{
		{"header only", tone[:20], fault.Corrupt, "ends inside its header"},
		{"metadata only", tone[:60], fault.Corrupt, "ends inside its metadata"},
		{"no stream info first", edit(4, 4), fault.Corrupt, "instead of its stream info"},
		{"long stream info", edit(7, 35), fault.Corrupt, "instead of its stream info"},
		{"sample rate 0", noRate, fault.Corrupt, "sample rate (0)"},
		{"claims a year", withTotal(tone, 1<<36-1), fault.Corrupt, "more than"},
		{"endless metadata", endless, fault.Corrupt, "more than 1024 metadata blocks"},
		{"no length anywhere", append(withTotal(tone, 0), make([]byte, 5<<20)...), fault.Unsupported, "does not say its length"},
		{"no frames", append(bytes.Clone(tone[:8600]), make([]byte, 9000)...), fault.Corrupt, "holds no audio"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Bytes("clip.flac", c.b)
			refusedAs(t, err, c.code, "clip.flac: ", c.text)
		})
	}
}

// TestFrameHeaders finds every frame that the decoder sees, with its number, and no other.
func TestFrameHeaders(t *testing.T) {
	for _, name := range []string{"tone.flac", "ffmpeg_piped_stereo_44k.flac"} {
		b := fixture(t, name)
		stream, err := flac.New(bytes.NewReader(b))
		require.NoError(t, err)
		var want []flacFrame
		for first := int64(0); ; {
			f, err := stream.ParseNext()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			want = append(want, flacFrame{first, int64(f.BlockSize)})
			first += int64(f.BlockSize)
		}
		var got []flacFrame
		for i := range b {
			if f, ok := parseFrameHeader(b[i:], stream.Info); ok {
				got = append(got, f)
			}
		}
		assert.Equal(t, want, got, name)
	}
}

func TestFrameHeaderCodes(t *testing.T) {
	for code, want := range map[byte]int64{0: 0, 1: 192, 2: 576, 5: 4608, 6: 8, 7: 0x0702, 8: 256, 15: 32768} {
		samples, _ := blockSamples(code, []byte{7, 1})
		assert.Equal(t, want, samples, "block size code %d", code)
	}
	for code, want := range map[byte]int{0: 0, 5: 16000, 9: 44100, 11: 96000, 12: 8000, 13: 0x0840, 14: 0x0840 * 10, 15: -1} {
		rate, _ := sampleRate(code, []byte{8, 0x40})
		assert.Equal(t, want, rate, "sample rate code %d", code)
	}
	for text, want := range map[string]int64{"\x00": 0, "\x7f": 127, "\xc2\x80": 128, "\xef\xbf\xbf": 0xffff, "\xfe\xbf\xbf\xbf\xbf\xbf\xbf": 1<<36 - 1} {
		number, n := codedNumber([]byte(text))
		assert.Equal(t, want, number)
		assert.Equal(t, len(text), n)
	}
	for _, bad := range []string{"\x80", "\xc2", "\xc2\x00", "\xff\xbf\xbf\xbf\xbf\xbf\xbf\xbf"} {
		_, n := codedNumber([]byte(bad))
		assert.Zero(t, n, "%q", bad)
	}
}

// TestChecksums uses the check values of the catalogue of CRC algorithms (CRC-8/SMBUS and CRC-16/UMTS over "123456789").
func TestChecksums(t *testing.T) {
	assert.EqualValues(t, 0xf4, crc8([]byte("123456789")))
	assert.EqualValues(t, 0xfee8, crc16([]byte("123456789")))
}

func FuzzFLAC(f *testing.F) {
	tone := fixture(f, "tone.flac")
	f.Add(tone[4:9500])
	f.Add(withTotal(tone, 0)[4:])
	f.Add(fixture(f, "ffmpeg_piped_stereo_44k.flac")[4:6000])
	f.Fuzz(func(t *testing.T, b []byte) { sane(t, append([]byte("fLaC"), b...)) })
}

func FuzzFrameHeader(f *testing.F) {
	tone := fixture(f, "tone.flac")
	si, err := streamInfo(tone[4:42])
	require.NoError(f, err)
	f.Add([]byte("\xff\xf8\xc5\x08\x00\x00"))
	f.Add([]byte("\xff\xf9\x7e\x08\xfe\xbf\xbf\xbf\xbf\xbf\xbf\x00\x01\x00\x02\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if frame, ok := parseFrameHeader(b, si); ok {
			assert.Positive(t, frame.samples)
			assert.GreaterOrEqual(t, frame.first, int64(0))
		}
	})
}
