package mpeg

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// TestFrameFixtures holds the samples against what FFmpeg 5.1 decodes.
func TestFrameFixtures(t *testing.T) {
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "tone.mp3", Samples: 17600, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "mp3", Method: "header"}},
		{File: "lame_cbr_44k.mp3", Samples: 48510, Want: media.Info{SampleRate: 44100, Channels: 1, Codec: "mp3", Method: "header"}},
		{File: "lame_vbr_44k_stereo.mp3", Samples: 48510, Want: media.Info{SampleRate: 44100, Channels: 2, Codec: "mp3", Method: "header"}},
		{File: "vbr_untagged_44k.mp3", Samples: 50688, Want: media.Info{SampleRate: 44100, Channels: 1, Codec: "mp3", Method: "walked"}},
		{File: "cbr_untagged_crc_44k.mp3", Samples: 50688, Want: media.Info{SampleRate: 44100, Channels: 1, Codec: "mp3", Method: "walked"}},
		{File: "mpeg25_8k.mp3", Samples: 10368, Want: media.Info{SampleRate: 8000, Channels: 1, Codec: "mp3", Method: "walked"}},
		{File: "tone.mp2", Samples: 18432, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "mp2", Method: "walked"}},
		{File: "stereo_44k.mp2", Samples: 49536, Want: media.Info{SampleRate: 44100, Channels: 2, Codec: "mp2", Method: "walked"}},
		{File: "tone.aac", Samples: 19456, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "aac", Method: "walked"}},
		{File: "mpeg2_stereo_44k.aac", Samples: 50176, Want: media.Info{SampleRate: 44100, Channels: 2, Codec: "aac", Method: "walked"}},
		{File: "checksums.aac", Samples: 20480, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "aac", Method: "walked"}},
		// plays at 44.1 kHz, stereo
		{File: "sbr_ps_44k.aac", Samples: 57344 / 2, Want: media.Info{SampleRate: 22050, Channels: 1, Codec: "aac", Method: "walked"}},
		{File: "six_channels_by_pce.aac", Samples: 19456, Want: media.Info{SampleRate: 16000, Channels: 6, Codec: "aac", Method: "walked"}},
	})
}

func TestMPEGHeads(t *testing.T) {
	cases := []struct {
		head          string
		size, samples int32
		rate, bitrate int
		layer         int
	}{
		{"\xff\xfb\x90\x00", 417, 1152, 44100, 128000, 3},
		{"\xff\xfa\x92\xc0", 418, 1152, 44100, 128000, 3}, // checksum, padding
		{"\xff\xfb\xe8\x00", 1440, 1152, 32000, 320000, 3},
		{"\xff\xf3\x14\x00", 24, 576, 24000, 8000, 3},
		{"\xff\xf3\x88\xc0", 288, 576, 16000, 64000, 3},
		{"\xff\xe3\x18\xc0", 72, 576, 8000, 8000, 3},
		{"\xff\xfd\xc4\x00", 768, 1152, 48000, 256000, 2},
		{"\xff\xf5\x80\x00", 417, 1152, 22050, 64000, 2},
		{"\xff\xff\x10\x00", 32, 384, 44100, 32000, 1},
		{"\xff\xff\x12\x00", 36, 384, 44100, 32000, 1}, // a slot of padding is four bytes
		{"\xff\xff\xe4\x00", 448, 384, 48000, 448000, 1},
		{"\xff\xf7\xe8\x00", 768, 384, 16000, 256000, 1},
	}
	for _, c := range cases {
		f, ok := parseSyncFrame([]byte(c.head))
		require.True(t, ok, "%x", c.head)
		assert.Equal(t, c.size, f.size, "%x", c.head)
		assert.Equal(t, c.samples, f.samples, "%x", c.head)
		assert.Equal(t, c.rate, f.rate(), "%x", c.head)
		assert.Equal(t, c.bitrate, mpegBitrate([]byte(c.head), f), "%x", c.head)
		assert.Equal(t, c.layer, f.layer(), "%x", c.head)
	}
	for _, bad := range []string{"", "\xff\xfb\x90", "\xff\xeb\x90\x00", "\xff\xfb\xf0\x00", "\xff\xfb\x9c\x00", "\xff\xdb\x90\x00", "\xff\xfb\x00\x00", "\xfe\xfb\x90\x00"} {
		_, ok := parseSyncFrame([]byte(bad))
		assert.False(t, ok, "%x", bad)
	}
}

// stream makes n silent frames that start with head, padded as encoders do where size is no whole
// number.
func stream(head string, n int) []byte {
	var out []byte
	f, _ := parseSyncFrame([]byte(head))
	exact := float64(f.samples) / 8 * float64(mpegBitrate([]byte(head), f)) / float64(f.rate())
	for i := range n {
		frame := make([]byte, f.size, f.size+1)
		copy(frame, head)
		if float64(len(out)+len(frame)+mpegSlot(f)) <= exact*float64(i+1) {
			frame[2] |= 2
			frame = append(frame, make([]byte, mpegSlot(f))...)
		}
		out = append(out, frame...)
	}
	return out
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func noise(n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(b)
	return b
}

func id3(body []byte, flags byte) []byte {
	n := len(body)
	return append([]byte{'I', 'D', '3', 4, 0, flags, byte(n >> 21 & 127), byte(n >> 14 & 127), byte(n >> 7 & 127), byte(n & 127)}, body...)
}

const (
	// 44.1 kHz at 32 and 128 kbit/s
	low, high, mono = "\xff\xfb\x10\x00", "\xff\xfb\x90\x00", "\xff\xfb\x90\xc0"
)

func TestFrontAndTailTags(t *testing.T) {
	apeFoot := "APETAGEX\xd0\x07\x00\x00\x48\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00"
	ape := []byte("APETAGEX\xd0\x07\x00\x00\x48\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xa0\x00\x00\x00\x00\x00\x00\x00\x00" + string(noise(40)) + apeFoot)
	v1 := append([]byte("TAG"), make([]byte, 125)...)
	foot := append(id3(noise(300), 0x10), append([]byte("3DI\x04\x00\x10"), 0, 0, 2, 44)...)
	fronts := map[string][]byte{
		"nothing": nil, "a tag": id3(noise(50), 0), "a tag of 5 MB": id3(noise(5<<20), 0), "two tags": join(id3(noise(900), 0), id3(noise(9000), 0)),
		"a tag with a footer": join(id3(make([]byte, 20), 0x10), []byte("3DI\x04\x00\x10\x00\x00\x00\x14")),
	}
	tails := map[string][]byte{
		"nothing": nil, "ID3v1": v1, "APE": ape, "APE and ID3v1": join(ape, v1),
		"ID3v2 behind": foot,
	}
	for _, name := range []string{"lame_vbr_44k_stereo.mp3", "vbr_untagged_44k.mp3", "tone.aac"} {
		audio := audiotest.Fixture(t, name)
		want, err := audiotest.Bytes(name, audio)
		require.NoError(t, err)
		for front, head := range fronts {
			for behind, tail := range tails {
				got, _, err := audiotest.File(audiotest.Write(t, join(head, audio, tail)))
				require.NoError(t, err)
				expected := want
				if want.Method == "header" && len(tail) > len(audio)/16 {
					// for FFmpeg another stream follows: it does not know where this one ends
					expected.DurationS = (44*1152 - 1105) / 44100.
				}
				assert.Equal(t, expected, got, "%s: %s in front, %s behind", name, front, behind)
			}
		}
		for _, junk := range [][]byte{make([]byte, 300), noise(300)} {
			got, err := audiotest.Bytes(name, join(audio, junk))
			require.NoError(t, err)
			assert.Equal(t, want.DurationS, got.DurationS)
			assert.Nil(t, got.ClaimedS)
		}
	}
}

// TestSomethingBeforeTheFirstFrame: FFmpeg takes no tag from a frame that something else than ID3v2
// comes before, and then plays every frame whole: 44 and the tag's.
func TestSomethingBeforeTheFirstFrame(t *testing.T) {
	tagged, plain := audiotest.Fixture(t, "lame_vbr_44k_stereo.mp3"), audiotest.Fixture(t, "vbr_untagged_44k.mp3")
	ape := []byte("APETAGEX\xd0\x07\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xa0\x00\x00\x00\x00\x00\x00\x00\x00datadata")
	for name, front := range map[string][]byte{
		"zeros": make([]byte, 4000), "many zeros": make([]byte, 200<<10), "noise": noise(3000), "a tag and zeros": join(id3(noise(99), 0), make([]byte, 9000)),
		"a tag and noise": join(id3(noise(99), 0), noise(30000)), "a tag that claims too little": join(id3(noise(99), 0), noise(20)), "an APE tag": ape,
	} {
		info, samples, err := audiotest.SamplesOf(join(front, tagged))
		require.NoError(t, err, name)
		assert.EqualValues(t, 45*1152, samples, name)
		assert.Equal(t, 2, info.Channels)
		_, samples, err = audiotest.SamplesOf(join(front, plain))
		require.NoError(t, err, name)
		assert.EqualValues(t, 50688, samples, name)
	}
	for name, b := range map[string][]byte{
		"too much of it": join(make([]byte, 300<<10), plain), "mostly something else": join(noise(2000), plain, noise(3*len(plain))),
		"text": []byte("\xff\xfeH\x00e\x00l\x00l\x00o\x00"), "one frame header": []byte(high), "no end of sync": bytes.Repeat([]byte{0xff}, 1<<20),
		"no frame behind a header": bytes.Repeat([]byte(high), 1<<18),
	} {
		_, err := audiotest.Bytes("x", b)
		audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "is not audio: its content is "+media.Contents(b[:min(media.ContentsLen, len(b))]))
		_ = name
	}
	_, err := audiotest.Bytes("x", id3(noise(500), 0))
	audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "ends inside its ID3 tag")
	_, err = audiotest.Bytes("x", join(id3(noise(500), 0), noise(500)))
	audiotest.RefusedAs(t, err, fault.Corrupt, "x: ", "holds no audio after its ID3 tag")
}

// TestFrameCutAtEveryByte: of MPEG audio FFmpeg plays a cut frame once its header is whole, of ADTS
// it does not.
func TestFrameCutAtEveryByte(t *testing.T) {
	for _, c := range []struct {
		file       string
		skip, drop int64 // frames that are a tag, samples in front
	}{
		{"lame_vbr_44k_stereo.mp3", 1, 1105}, {"vbr_untagged_44k.mp3", 0, 0}, {"tone.mp2", 0, 0}, {"tone.aac", 0, 0},
	} {
		original := audiotest.Fixture(t, c.file)
		want, err := audiotest.Bytes(c.file, original)
		require.NoError(t, err)
		frames, perFrame, pos := -c.skip, int64(0), 0
		for k := range original {
			f, ok := parseSyncFrame(original[pos:])
			require.True(t, ok)
			perFrame = int64(f.samples)
			started, ended := k >= pos+mpegHeadLen, k == pos+int(f.size)
			if ended {
				frames, pos = frames+1, k
				started = false
			}
			complete := frames
			if started && !f.isADTS() {
				complete++
			}
			info, samples, err := audiotest.SamplesOf(original[:k])
			if c.skip == 0 && frames == 0 || complete*perFrame <= c.drop {
				require.Error(t, err, "%s cut to %d", c.file, k)
				continue
			}
			require.NoError(t, err, "%s cut to %d", c.file, k)
			if c.skip > 0 && samples == 48510 {
				continue // only padding is missing
			}
			require.Equal(t, complete*perFrame-c.drop, samples, "%s cut to %d", c.file, k)
			if c.skip > 0 {
				require.NotNil(t, info.ClaimedS)
				assert.Equal(t, want.DurationS, *info.ClaimedS)
			}
		}
	}
}

func FuzzMPEG(f *testing.F) {
	for _, name := range []string{"tone.mp3", "lame_vbr_44k_stereo.mp3", "vbr_untagged_44k.mp3", "mpeg25_8k.mp3", "tone.mp2"} {
		f.Add(audiotest.Fixture(f, name)[1:2500])
	}
	f.Add(join([]byte{0xfb}, stream(high, 3)[2:], []byte("TAG")))
	f.Fuzz(func(t *testing.T, b []byte) { audiotest.Sane(t, append([]byte{0xff}, b...)) })
}

func FuzzTailTag(f *testing.F) {
	audio := stream(high, 4)
	f.Add([]byte("APETAGEX\xd0\x07\x00\x00\x20\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("3DI\x04\x00\x10\x00\x00\x00\x14"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file := join(audio, b)
		s := new(media.File)
		s.Hold(file)
		end := tagsEnd(s, int64(len(audio)))
		assert.GreaterOrEqual(t, end, int64(len(audio)))
		assert.LessOrEqual(t, end, s.Size)
		audiotest.Sane(t, file)
	})
}
