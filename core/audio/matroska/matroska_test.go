package matroska

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// TestMatroskaFixtures holds the length against what FFmpeg decodes: ffmpeg -i FILE -map 0:a -f
// s16le - | wc -c.
func TestMatroskaFixtures(t *testing.T) {
	audiotest.Agree(t, []audiotest.Decoded{
		{File: "opus.webm", Samples: 52800, Want: media.Info{SampleRate: 48000, Channels: 1, Codec: "opus", Method: "walked"}},
		{File: "live.webm", Samples: 52800, Want: media.Info{SampleRate: 48000, Channels: 1, Codec: "opus", Method: "walked"}},
		{File: "film.webm", Samples: 52800, Want: media.Info{SampleRate: 48000, Channels: 1, Codec: "opus", Method: "walked"}},
		{File: "vorbis.webm", Samples: 17920, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "vorbis", Method: "walked"}},
		{File: "flac_0.3s.mka", Samples: 4800, Want: media.Info{SampleRate: 16000, Channels: 1, Bits: 16, Codec: "flac", Method: "walked"}},
		{File: "alac_8k_0.7s.mka", Samples: 5600, Want: media.Info{SampleRate: 8000, Channels: 1, Bits: 16, Codec: "alac", Method: "walked"}},
		{File: "laced_mp3.mka", Samples: 19584, Want: media.Info{SampleRate: 16000, Channels: 1, Codec: "mp3", Method: "walked"}},
		// by FFmpeg 8.0; 5.1 passes over CodecDelay
		{File: "aac_delay.mka", Samples: 18432, Want: media.Info{SampleRate: 16000, Channels: 2, Codec: "aac", Method: "walked"}},
	})
}

// TestMatroskaTruncated cuts at every byte. FFmpeg 5.1 decodes as many samples at the points named.
func TestMatroskaTruncated(t *testing.T) {
	decoded := map[string]map[int]float64{
		"live.webm": {1000: 8328, 2000: 26568},
		"opus.webm": {1000: 7368, 2000: 24648},
	}
	for name, points := range decoded {
		b, before := audiotest.Fixture(t, name), 0.0
		for n := range len(b) + 1 {
			info, err := audiotest.Bytes(name, b[:n])
			if err != nil {
				assert.Zero(t, before, n)
				continue
			}
			if want, ok := points[n]; ok {
				assert.InDelta(t, want/48000, info.DurationS, 1e-9)
			}
			if n < len(b)-60 {
				// where what to drop of the last packet is missing, the file plays longer
				assert.GreaterOrEqual(t, info.DurationS, before, n)
			}
			before = info.DurationS
			if frames := (info.DurationS*48000 + 312) / 960; n < len(b)-60 {
				assert.InDelta(t, math.Round(frames), frames, 1e-6, n)
				assert.Equal(t, name == "opus.webm", info.ClaimedS != nil, "%s, %d", name, n)
			}
		}
		assert.InDelta(t, 1.1, before, 1e-9)
	}
}

// elem makes an EBML element.
func elem(id uint32, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	return append(be.AppendUint32(idBytes(id), 0x10000000|uint32(len(body))), body...)
}

// openElem makes one that does not say its size.
func openElem(id uint32, parts ...[]byte) []byte {
	return append(append(idBytes(id), 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), bytes.Join(parts, nil)...)
}

func idBytes(id uint32) []byte { return bytes.TrimLeft(be.AppendUint32(nil, id), "\x00") }

func uintElem(id uint32, x uint64) []byte { return elem(id, be.AppendUint64(nil, x)) }
func realElem(id uint32, x float64) []byte {
	return elem(id, be.AppendUint64(nil, math.Float64bits(x)))
}

var ebmlHead = elem(idEBML, elem(0x4282, []byte("matroska")))

// pcmTrack is 16-bit mono at 1000 Hz; more goes into the track entry.
func pcmTrack(more ...[]byte) []byte {
	audio := elem(idAudio, realElem(idSampling, 1000), uintElem(idChannels, 1), uintElem(idBitDepth, 16))
	return elem(idTrackEntry, uintElem(idTrackNumber, 1), uintElem(idTrackType, 2), elem(idCodecID, []byte("A_PCM/INT/LIT")), audio, bytes.Join(more, nil))
}

func film(number uint64) []byte {
	return elem(idTrackEntry, uintElem(idTrackNumber, number), uintElem(idTrackType, 1), elem(idCodecID, []byte("V_VP8")))
}

func info(duration float64) []byte { return elem(idInfo, realElem(idDuration, duration)) }

func blockBody(track byte, timestamp int16, lacing byte, body ...[]byte) []byte {
	return append(be.AppendUint16([]byte{0x80 | track}, uint16(timestamp)), append([]byte{lacing << 1}, bytes.Join(body, nil)...)...)
}

// pcmBlock holds n samples.
func pcmBlock(timestamp int16, n int) []byte {
	return elem(idSimpleBlock, blockBody(1, timestamp, 0, make([]byte, 2*n)))
}

// cluster of k blocks of 100 ms each.
func cluster(timestamp uint64, k int) []byte {
	parts := [][]byte{uintElem(idTimestamp, timestamp)}
	for i := range k {
		parts = append(parts, pcmBlock(int16(100*i), 100))
	}
	return elem(idCluster, parts...)
}

func matroskaFile(parts ...[]byte) []byte {
	return append(bytes.Clone(ebmlHead), elem(idSegment, parts...)...)
}

func TestMatroskaOdd(t *testing.T) {
	stripped := elem(idEncodings, elem(idEncoding, elem(idCompression, uintElem(idAlgorithm, 3), elem(idSettings, []byte{0xf8}))))
	opus := func(more ...[]byte) []byte {
		return elem(idTrackEntry, uintElem(idTrackNumber, 1), uintElem(idTrackType, 2), elem(idCodecID, []byte("A_OPUS")), bytes.Join(more, nil))
	}
	group := func(parts ...[]byte) []byte { return elem(idBlockGroup, parts...) }
	timestamp := uintElem(idTimestamp, 0)
	original := matroskaFile(info(500), elem(idTracks, pcmTrack()), cluster(0, 5))
	tracks := elem(idTracks, pcmTrack())
	two := [][]byte{{0, 0}, {0, 0, 0, 0}}
	audiotest.Measured(t, map[string]audiotest.Clip{
		"plain":                                    {B: original, Seconds: 0.5},
		"cut inside the last block":                {B: original[:len(original)-1], Seconds: 0.4, Claimed: 0.5},
		"header claims more":                       {B: matroskaFile(info(5000), tracks, cluster(0, 5)), Seconds: 0.5, Claimed: 5},
		"header claims less":                       {B: matroskaFile(info(1), tracks, cluster(0, 9)), Seconds: 0.9, Claimed: 0.001},
		"pictures last longer":                     {B: matroskaFile(info(5000), elem(idTracks, film(2), pcmTrack()), cluster(0, 5)), Seconds: 0.5},
		"no length":                                {B: matroskaFile(tracks, cluster(0, 5)), Seconds: 0.5},
		"all sizes unknown":                        {B: append(bytes.Clone(ebmlHead), openElem(idSegment, tracks, openElem(idCluster, timestamp, pcmBlock(0, 100)), openElem(idCluster, uintElem(idTimestamp, 100), pcmBlock(0, 50)))...), Seconds: 0.15},
		"another document behind":                  {B: append(bytes.Clone(original), original...), Seconds: 0.5},
		"another document inside an open one":      {B: append(append(bytes.Clone(ebmlHead), openElem(idSegment, tracks, cluster(0, 2))...), original...), Seconds: 0.2},
		"garbage behind":                           {B: append(bytes.Clone(original), make([]byte, 50)...), Seconds: 0.5},
		"garbage inside":                           {B: matroskaFile(tracks, cluster(0, 3), make([]byte, 50)), Seconds: 0.3},
		"starts late":                              {B: matroskaFile(info(60_500), tracks, cluster(60_000, 5)), Seconds: 0.5},
		"other tracks between":                     {B: matroskaFile(tracks, elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(2, 0, 0, make([]byte, 900))), pcmBlock(0, 100))), Seconds: 0.1},
		"clock of 10 us":                           {B: matroskaFile(elem(idInfo, uintElem(idScale, 10_000), realElem(idDuration, 50_000)), tracks, cluster(0, 5)), Seconds: 0.5},
		"groups with padding":                      {B: matroskaFile(tracks, elem(idCluster, timestamp, group(elem(idBlock, blockBody(1, 0, 0, make([]byte, 200))), uintElem(idDiscard, 30_000_000)))), Seconds: 0.07},
		"padding below 0":                          {B: matroskaFile(tracks, elem(idCluster, timestamp, group(elem(idBlock, blockBody(1, 0, 0, make([]byte, 200))), uintElem(idDiscard, math.MaxUint64-5)))), Seconds: 0.1},
		"delay":                                    {B: matroskaFile(elem(idTracks, pcmTrack(uintElem(idCodecDelay, 20_000_000))), cluster(0, 1)), Seconds: 0.08},
		"Xiph lacing":                              {B: matroskaFile(tracks, elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(1, 0, 1, []byte{2, 255, 1, 2}, make([]byte, 256+2+42))))), Seconds: 0.15},
		"fixed lacing":                             {B: matroskaFile(tracks, elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(1, 0, 2, []byte{2}, make([]byte, 300))))), Seconds: 0.15},
		"EBML lacing":                              {B: matroskaFile(tracks, elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(1, 0, 3, []byte{2, 0x40, 200, 0x5f, 0xff - 100}, make([]byte, 200+100+6))))), Seconds: 0.153},
		"frames of one byte":                       {B: matroskaFile(tracks, elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(1, 0, 1, []byte{1, 2}, bytes.Join(two, nil))))), Seconds: 0.003},
		"stripped heads":                           {B: matroskaFile(elem(idTracks, opus(stripped)), elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(1, 0, 0, []byte{1, 2})), elem(idSimpleBlock, blockBody(1, 20, 0, []byte{1, 2})))), Seconds: 0.04},
		"frames that do not tell, with lengths":    {B: matroskaFile(elem(idTracks, opus(uintElem(idDefaultDuration, 20_000_000))), elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(1, 0, 0)), group(elem(idBlock, blockBody(1, 20, 0)), uintElem(idBlockDuration, 30)))), Seconds: 0.05},
		"frames that do not tell, with the header": {B: matroskaFile(info(77), elem(idTracks, opus()), elem(idCluster, timestamp, elem(idSimpleBlock, blockBody(1, 0, 0)), elem(idSimpleBlock, blockBody(1, 20, 0)))), Seconds: 0.077},
	})
}

// TestMatroskaLong: of a large file only the first and the last cluster with sound are looked into.
func TestMatroskaLong(t *testing.T) {
	pad := make([]byte, 60_000)
	silent := func(timestamp uint64) []byte {
		return elem(idCluster, elem(idChecksum, []byte("abcd")), uintElem(idTimestamp, timestamp), elem(idSimpleBlock, blockBody(2, 0, 0, pad)))
	}
	filled := func(timestamp uint64) []byte {
		return elem(idCluster, elem(idChecksum, []byte("abcd")), uintElem(idTimestamp, timestamp), pcmBlock(0, 500), elem(idSimpleBlock, blockBody(2, 0, 0, pad)), pcmBlock(500, 500))
	}
	sound := [][]byte{info(40_000), elem(idTracks, film(2), pcmTrack())}
	for i := range 40 {
		sound = append(sound, filled(uint64(1000*i)))
	}
	pictures := bytes.Clone(bytes.Join(sound, nil))
	for i := range 20 {
		pictures = append(pictures, silent(uint64(40_000+1000*i))...)
	}
	alone := append([][]byte{info(40_000), elem(idTracks, pcmTrack())}, sound[2:]...)
	wrong := append([][]byte{info(9000), elem(idTracks, pcmTrack())}, sound[2:]...)
	live := [][]byte{ebmlHead, openElem(idSegment), elem(idTracks, pcmTrack())}
	thousand := bytes.Repeat(pcmBlock(0, 1), 1000)
	for i := range 300 {
		live = append(live, openElem(idCluster, uintElem(idTimestamp, uint64(1000*i))), thousand, pcmBlock(999, 1))
	}
	cues := elem(0x1c53bb6b, make([]byte, 3000))
	last := len(matroskaFile(sound...)) - len(sound[41])
	audiotest.Measured(t, map[string]audiotest.Clip{
		"film":                           {B: matroskaFile(sound...), Seconds: 40, Method: "tail"},
		"index behind":                   {B: matroskaFile(append(sound, cues)...), Seconds: 40, Method: "tail"},
		"sound ends before the pictures": {B: matroskaFile(pictures), Seconds: 40, Method: "tail"},
		"cut inside the last cluster":    {B: matroskaFile(sound...)[:last+2000], Seconds: 39.5, Claimed: 40, Method: "tail"},
		"cut before any sound of the last cluster": {B: matroskaFile(sound...)[:last+20], Seconds: 39, Claimed: 40, Method: "tail"},
		"header is right":                          {B: matroskaFile(alone...), Seconds: 40, Method: "tail"},
		"header is wrong":                          {B: matroskaFile(wrong...), Seconds: 40, Claimed: 9, Method: "walked"},
		"live":                                     {B: append(bytes.Clone(ebmlHead), openElem(idSegment, sound...)...), Seconds: 40, Method: "tail"},
		"live and very long":                       {B: bytes.Join(live, nil), Seconds: 300, Method: "tail"},
		"impossible clock":                         {B: matroskaFile(append(bytes.Clone(bytes.Join(sound, nil)), filled(1<<50)...)), Seconds: 41, Method: "walked"},
	})
}

func TestMatroskaRefused(t *testing.T) {
	codec := func(id string, more ...[]byte) []byte {
		return matroskaFile(elem(idTracks, elem(idTrackEntry, uintElem(idTrackNumber, 1), uintElem(idTrackType, 2), elem(idCodecID, []byte(id)), bytes.Join(more, nil))))
	}
	encrypted := elem(idEncodings, elem(idEncoding, elem(idEncryption)))
	huge := append(bytes.Clone(ebmlHead), idBytes(idSegment)...)
	huge = append(huge, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe)
	audiotest.Refuses(t, "clip.webm", []audiotest.Refusal{
		{Name: "cut inside the first element", B: ebmlHead[:9], Code: fault.Corrupt, Text: "ends inside its EBML header"},
		{Name: "nothing behind the first element", B: ebmlHead, Code: fault.Corrupt, Text: "ends before its segment"},
		{Name: "other elements for ever", B: append(bytes.Clone(ebmlHead), bytes.Repeat([]byte{0xec, 0x80}, 5000)...), Code: fault.Corrupt, Text: "ends before its segment"},
		{Name: "segment of 2^56 bytes", B: append(huge, elem(idInfo)...), Code: fault.Corrupt, Text: "ends before its tracks"},
		{Name: "too many elements", B: append(append(bytes.Clone(ebmlHead), openElem(idSegment)...), bytes.Repeat([]byte{0xec, 0x80}, media.MaxSteps/media.StepsHead+1)...), Code: fault.Unsupported, Text: "more parts than"},
		{Name: "no sound", B: matroskaFile(elem(idTracks, film(1)), cluster(0, 1)), Code: fault.Corrupt, Text: "holds no audio track"},
		{Name: "tracks only", B: matroskaFile(elem(idTracks, pcmTrack())), Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "rate 0", B: matroskaFile(elem(idTracks, elem(idTrackEntry, uintElem(idTrackNumber, 1), uintElem(idTrackType, 2), elem(idCodecID, []byte("A_AC3")), elem(idAudio, realElem(idSampling, math.NaN())))), cluster(0, 1)), Code: fault.Corrupt, Text: "0 Hz"},
		{Name: "unknown codec", B: codec("A_REAL/COOK"), Code: fault.Unsupported, Text: `unknown codec ("A_REAL/COOK")`},
		{Name: "encrypted", B: codec("A_OPUS", encrypted), Code: fault.Unsupported, Text: "is encrypted"},
		{Name: "Vorbis without headers", B: codec("A_VORBIS", elem(idCodecPrivate, []byte{2, 255, 255})), Code: fault.Corrupt, Text: "Vorbis track without its headers"},
		{Name: "FLAC without headers", B: codec("A_FLAC"), Code: fault.Corrupt, Text: "without its stream info"},
		{Name: "Opus of version 16", B: codec("A_OPUS", elem(idCodecPrivate, []byte("OpusHead\x10\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"))), Code: fault.Unsupported, Text: "version 16"},
		{Name: "a clock that cannot be", B: matroskaFile(elem(idTracks, elem(idTrackEntry, uintElem(idTrackNumber, 1), uintElem(idTrackType, 2), elem(idCodecID, []byte("A_TTA1")))), elem(idCluster, elem(idSimpleBlock, blockBody(1, 0, 0)), uintElem(idTimestamp, 1<<60), elem(idSimpleBlock, blockBody(1, 0, 0)))), Code: fault.Corrupt, Text: "more than"},
	})
}

func TestVint(t *testing.T) {
	cases := []struct {
		b    string
		x    uint64
		n    int
		ones bool
	}{
		{"\x81", 1, 1, false}, {"\xff", 127, 1, true}, {"\x40\x80", 128, 2, false}, {"\x7f\xff", 1<<14 - 1, 2, true},
		{"\x01\xff\xff\xff\xff\xff\xff\xff", 1<<56 - 1, 8, true}, {"\x01\x00\x00\x00\x00\x00\x00\x05", 5, 8, false},
		{"", 0, 0, false}, {"\x00\x01", 0, 0, false}, {"\x40", 0, 0, false},
	}
	for _, c := range cases {
		x, n, ones := vint([]byte(c.b))
		assert.Equal(t, c.x, x, "%x", c.b)
		assert.Equal(t, c.n, n, "%x", c.b)
		assert.Equal(t, c.ones, ones, "%x", c.b)
	}
}

func TestPacketSamples(t *testing.T) {
	cases := []struct {
		name string
		p    packets
		b    string
		want int64
	}{
		{"E-AC-3 of 6 blocks", packets{codec: "eac3"}, "\x0b\x77\x01\xff\x3f", 1536},
		{"E-AC-3 of 1 block", packets{codec: "eac3"}, "\x0b\x77\x01\xff\x0f", 256},
		{"E-AC-3 at half the rate", packets{codec: "eac3"}, "\x0b\x77\x01\xff\xff", 1536},
		{"no E-AC-3", packets{codec: "eac3"}, "\x0b\x78\x01\xff\x3f", 0},
		{"full ALAC", packets{codec: "alac", fixed: 4096}, "\x00\x00\x00\x20\x00\x00\x00\x00", 4096},
		{"short ALAC", packets{codec: "alac", fixed: 4096}, "\x00\x00\x10\x00\x00\x02\x00\x00", 256},
		{"WavPack", packets{codec: "wavpack"}, "\x22\x56\x00\x00\x00", 22050},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, c.p.samples([]byte(c.b), int64(len(c.b))), c.name)
	}
}

func FuzzMatroska(f *testing.F) {
	for _, name := range []string{"opus.webm", "live.webm", "vorbis.webm", "laced_mp3.mka", "flac_0.3s.mka", "aac_delay.mka", "film.webm"} {
		f.Add(audiotest.Fixture(f, name)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) { audiotest.Sane(t, append([]byte("\x1a\x45\xdf\xa3"), b...)) })
}

func FuzzLaces(f *testing.F) {
	f.Add([]byte{255, 1, 2, 3}, 2, 1, int64(300))
	f.Add([]byte{0x40, 200, 0x5f, 0xff}, 3, 3, int64(600))
	f.Add([]byte{0xc8}, 4, 3, int64(593)) // ends where a difference is due
	f.Fuzz(func(t *testing.T, b []byte, count, lacing int, total int64) {
		if count < 1 || count > maxLaced || lacing < lacingXiph || lacing > lacingEBML || total < 0 {
			return
		}
		sizes := make([]int64, count)
		used, ok := laceSizes(b, sizes, lacing, total)
		if !ok {
			return
		}
		sum := int64(used)
		for _, size := range sizes {
			assert.GreaterOrEqual(t, size, int64(0))
			sum += size
		}
		assert.Equal(t, total, sum)
	})
}
