package flac

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/mewkiz/flac"
	"github.com/mewkiz/flac/frame"
	"github.com/mewkiz/flac/meta"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
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

func TestFLACFixtures(t *testing.T) {
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "tone.flac", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
		{File: "piped.flac", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "header"}},
		{File: "unknown_length.flac", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "tail"}},
		{File: "ffmpeg_piped_stereo_44k.flac", Samples: 48510, Want: media.Info{SampleRate: 44100, Channels: 2, Bits: 16, Codec: "flac", Method: "tail"}},
	})
}

// TestFLACVariants: of the length, the frames are believed, as FFmpeg does; the header's word is
// shown beside it.
func TestFLACVariants(t *testing.T) {
	tone := audiotest.Fixture(t, "tone.flac")
	// longer than the head that is read
	id3 := append([]byte("ID3\x03\x00\x00\x00\x00\x4e\x10"), make([]byte, 0x4e<<7+0x10)...)
	tag := append([]byte("TAG"), make([]byte, 125)...)
	ape := append([]byte("some itemsAPETAGEX\xd0\x07\x00\x00\x2a\x00\x00\x00"), make([]byte, 16)...)
	edited := func(at int, text string) []byte {
		b := bytes.Clone(tone)
		copy(b[at:], text)
		return b
	}
	clips := map[string]audiotest.Clip{
		"ID3v2 in front":   {B: slices.Concat(id3, tone)},
		"ID3v1 behind":     {B: slices.Concat(tone, tag)},
		"APE tag behind":   {B: slices.Concat(tone, ape)},
		"zeros behind":     {B: slices.Concat(tone, make([]byte, 3000))},
		"a megabyte more":  {B: slices.Concat(tone, make([]byte, 1<<20))},
		"claims more":      {B: withTotal(tone, 1<<36-1), Claimed: (1<<36 - 1) / 16000.0},
		"claims less":      {B: withTotal(tone, 9000), Claimed: 9000 / 16000.0},
		"block sizes":      {B: edited(8, "\x04\x00\x04\x00")}, // 1024 samples instead of 4096
		"small frames":     {B: edited(12, "\x00\x00\x0e\x00\x00\x0e")},
		"huge frames":      {B: edited(12, "\xff\xff\xff\xff\xff\xff")},
		"pictures of 8 MB": {B: slices.Concat(tone[:42], []byte("\x06\x7f\xff\xff"), make([]byte, 0x7fffff), tone[42:]), Method: "header"},
	}
	for name, clip := range clips {
		clip.Seconds = 1.1
		clips[name] = clip
	}
	audiotest.Measured(t, clips)
}

func TestFLACRefused(t *testing.T) {
	tone := audiotest.Fixture(t, "tone.flac")
	edit := func(offset int, b byte) []byte { c := bytes.Clone(tone); c[offset] = b; return c }
	noRate := bytes.Clone(tone)
	noRate[18], noRate[19], noRate[20] = 0, 0, noRate[20]&0x0f
	endless := append([]byte(nil), tone[:42]...)
	for range maxMetadataBlocks + 1 {
		endless = append(endless, 1, 0, 0, 0)
	}
	audiotest.Refuses(t, "clip.flac", []audiotest.Refusal{
		{Name: "header only", B: tone[:20], Code: fault.Corrupt, Text: "ends inside its header"},
		{Name: "metadata only", B: tone[:60], Code: fault.Corrupt, Text: "ends inside its metadata"},
		{Name: "no stream info first", B: edit(4, 4), Code: fault.Corrupt, Text: "instead of its stream info"},
		{Name: "long stream info", B: edit(7, 35), Code: fault.Corrupt, Text: "instead of its stream info"},
		{Name: "sample rate 0", B: noRate, Code: fault.Corrupt, Text: "sample rate of 0 Hz"},
		{Name: "endless metadata", B: endless, Code: fault.Corrupt, Text: "more than 1024 metadata blocks"},
		{Name: "other sample rate", B: withRate(tone, 44100), Code: fault.Corrupt, Text: "frames of 16000 Hz, though its header says 44100 Hz"},
		{Name: "no frames", B: append(bytes.Clone(tone[:8600]), make([]byte, 9000)...), Code: fault.Corrupt, Text: "holds no audio"},
	})
}

func withRate(b []byte, rate int) []byte {
	b = bytes.Clone(b)
	b[18], b[19], b[20] = byte(rate>>12), byte(rate>>4), byte(rate<<4)|b[20]&15
	return b
}

// encoded makes a FLAC file of uncompressed frames with these block sizes. Nothing closes it: its
// header claims nothing.
func encoded(t *testing.T, fixed bool, sizes ...uint16) []byte {
	t.Helper()
	var out bytes.Buffer
	enc, err := flac.NewEncoder(&out, &meta.StreamInfo{BlockSizeMin: 16, BlockSizeMax: 5000, SampleRate: 16000, NChannels: 1, BitsPerSample: 16})
	require.NoError(t, err)
	first := uint64(0)
	for i, n := range sizes {
		one := &frame.Frame{Header: frame.Header{HasFixedBlockSize: fixed, BlockSize: n, SampleRate: 16000, BitsPerSample: 16, Num: first}}
		if fixed {
			one.Num = uint64(i)
		}
		samples := make([]int32, n)
		for j := range samples {
			samples[j] = int32(j*7919%30011) - 15000
		}
		one.Subframes = []*frame.Subframe{{SubHeader: frame.SubHeader{Pred: frame.PredVerbatim}, NSamples: int(n), Samples: samples}}
		require.NoError(t, enc.WriteFrame(one))
		first += uint64(n)
	}
	return out.Bytes()
}

func TestFLACVariableBlocks(t *testing.T) {
	b := encoded(t, false, 4000, 16, 300, 5000, 1234, 77)
	info, samples, err := audiotest.SamplesOf(b)
	require.NoError(t, err)
	assert.EqualValues(t, 4000+16+300+5000+1234+77, samples)
	assert.Equal(t, decodable(t, b), samples)
	assert.Equal(t, "tail", info.Method)
	_, samples, err = audiotest.SamplesOf(b[:len(b)-10])
	require.NoError(t, err)
	assert.EqualValues(t, 4000+16+300+5000+1234, samples)
}

// TestFLACPiece: frames cut from the middle of a file keep their numbers.
func TestFLACPiece(t *testing.T) {
	b := encoded(t, true, 1000, 1000, 1000, 1000, 400)
	second := bytes.Index(b[60:], []byte("\xff\xf8")) + 60
	piece := append(withTotal(b[:42], 4400), b[second:]...) // FFmpeg's copy keeps the header too
	info, samples, err := audiotest.SamplesOf(piece)
	require.NoError(t, err)
	assert.EqualValues(t, 3400, samples)
	if assert.NotNil(t, info.ClaimedS) {
		assert.InDelta(t, 4400.0/16000, *info.ClaimedS, 1e-9)
	}
	assert.Equal(t, decodable(t, piece), samples)
}

// TestFLACCutAnywhere: exactly the whole frames count, wherever the file ends.
func TestFLACCutAnywhere(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		step int
	}{{encoded(t, true, 300, 300, 300, 40), 1}, {encoded(t, false, 300, 17, 300, 40), 1}, {audiotest.Fixture(t, "tone.flac"), 61}} {
		si, err := ParseStreamInfo(c.b[4:42])
		require.NoError(t, err)
		if c.step == 1 {
			si.BlockSizeMax = 300
		}
		var offsets []int
		var frames []Frame
		for i := range c.b {
			if f, ok := ParseFrameHeader(c.b[i:], si); ok {
				offsets, frames = append(offsets, i), append(frames, f)
			}
		}
		require.GreaterOrEqual(t, len(frames), 4)
		offsets = append(offsets[1:], len(c.b))
		for keep := 0; keep < len(c.b); keep += c.step {
			info, samples, err := audiotest.SamplesOf(c.b[:keep])
			complete := int64(0)
			for i, end := range offsets {
				if end <= keep {
					complete = frames[i].end()
				}
			}
			if complete == 0 {
				require.Error(t, err, "cut to %d", keep)
				continue
			}
			require.NoError(t, err, "cut to %d", keep)
			require.Equal(t, complete, samples, "cut to %d", keep)
			assert.Equal(t, si.NSamples > 0, info.ClaimedS != nil)
		}
	}
}

// TestFrameHeaders finds every frame that the decoder sees, with its number, and no other.
func TestFrameHeaders(t *testing.T) {
	for _, name := range []string{"tone.flac", "ffmpeg_piped_stereo_44k.flac"} {
		b := audiotest.Fixture(t, name)
		stream, err := flac.New(bytes.NewReader(b))
		require.NoError(t, err)
		var want []Frame
		for first := int64(0); ; {
			f, err := stream.ParseNext()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			want = append(want, Frame{first, int64(f.BlockSize)})
			first += int64(f.BlockSize)
		}
		var got []Frame
		for i := range b {
			if f, ok := ParseFrameHeader(b[i:], stream.Info); ok {
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

// TestChecksums uses the check values of the catalogue of CRC algorithms (CRC-8/SMBUS and
// CRC-16/UMTS over "123456789").
func TestChecksums(t *testing.T) {
	assert.EqualValues(t, 0xf4, crc8([]byte("123456789")))
	assert.EqualValues(t, 0xfee8, crc16([]byte("123456789")))
}

func FuzzFLAC(f *testing.F) {
	tone := audiotest.Fixture(f, "tone.flac")
	f.Add(tone[4:9500])
	f.Add(withTotal(tone, 0)[4:])
	f.Add(audiotest.Fixture(f, "ffmpeg_piped_stereo_44k.flac")[4:6000])
	f.Add(append(bytes.Clone(tone[4:]), make([]byte, 300)...))
	f.Fuzz(func(t *testing.T, b []byte) { audiotest.Sane(t, append([]byte("fLaC"), b...)) })
}

func FuzzFrameHeader(f *testing.F) {
	tone := audiotest.Fixture(f, "tone.flac")
	si, err := ParseStreamInfo(tone[4:42])
	require.NoError(f, err)
	f.Add([]byte("\xff\xf8\xc5\x08\x00\x00"))
	f.Add([]byte("\xff\xf9\x7e\x08\xfe\xbf\xbf\xbf\xbf\xbf\xbf\x00\x01\x00\x02\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if frame, ok := ParseFrameHeader(b, si); ok {
			assert.Positive(t, frame.Samples)
			assert.GreaterOrEqual(t, frame.first, int64(0))
		}
	})
}
