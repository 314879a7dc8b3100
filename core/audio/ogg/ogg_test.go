package ogg

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/audio/audiotest"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// pages cuts a file into its Ogg pages.
func pages(t *testing.T, b []byte) (all [][]byte) {
	t.Helper()
	for off := int64(0); off < int64(len(b)); {
		p, ok := pageAt(b[off:], off)
		require.True(t, ok)
		all = append(all, bytes.Clone(b[off:p.next()]))
		off = p.next()
	}
	return all
}

// reserial returns a copy with another serial number and every audio position moved. Checksums are
// made again.
func reserial(t *testing.T, b []byte, serial uint32, move int64) []byte {
	t.Helper()
	var out []byte
	for _, p := range pages(t, b) {
		le.PutUint32(p[14:], serial)
		if granule := int64(le.Uint64(p[6:])); granule > 0 {
			le.PutUint64(p[6:], uint64(granule+move))
		}
		le.PutUint32(p[22:], 0)
		le.PutUint32(p[22:], pageSum(p))
		out = append(out, p...)
	}
	return out
}

// pageSum is the checksum of pages: polynomial 0x04c11db7, high bit first, start 0.
func pageSum(b []byte) (sum uint32) {
	for _, x := range b {
		sum ^= uint32(x) << 24
		for range 8 {
			sum = sum<<1 ^ sum>>31*0x04c11db7
		}
	}
	return sum
}

func TestOggRefused(t *testing.T) {
	tone := audiotest.Fixture(t, "tone.ogg")
	edit := func(offset int, b ...byte) []byte { c := bytes.Clone(tone); copy(c[offset:], b); return c }
	all := pages(t, tone)
	huge := audiotest.Fixture(t, "stereo_44k_4.4s.ogg")
	last := huge[bytes.LastIndex(huge, []byte("OggS")):]
	le.PutUint64(last[6:], 1<<50)
	le.PutUint32(last[22:], 0)
	le.PutUint32(last[22:], pageSum(last))
	audiotest.Refuses(t, "clip.ogg", []audiotest.Refusal{
		{Name: "first page cut", B: tone[:20], Code: fault.Corrupt, Text: "ends inside its first Ogg page"},
		{Name: "no header", B: bytes.Join(all[1:], nil), Code: fault.Corrupt, Text: "starts in the middle"},
		{Name: "first header cut", B: tone[:45], Code: fault.Corrupt, Text: "ends inside its Vorbis header"},
		{Name: "headers only", B: bytes.Join(all[:2], nil), Code: fault.Corrupt, Text: "holds no audio"},
		{Name: "rate 0", B: edit(28+12, 0, 0, 0, 0), Code: fault.Corrupt, Text: "0 Hz"},
		{Name: "channels 0", B: edit(28+11, 0), Code: fault.Corrupt, Text: "0 channels"},
		{Name: "block sizes", B: edit(28+28, 0x0f), Code: fault.Corrupt, Text: "block sizes"},
		{Name: "version", B: edit(28+7, 1), Code: fault.Unsupported, Text: "version 1"},
		{Name: "impossible position", B: huge, Code: fault.Corrupt, Text: "more than"},
		{Name: "a film", B: edit(28, []byte("\x80theora")...), Code: fault.Unsupported, Text: "without a supported audio stream"},
	})
}

func FuzzOgg(f *testing.F) {
	tone := audiotest.Fixture(f, "tone.ogg")
	f.Add(tone[4:])
	f.Add(tone[4:3600])
	f.Add(append(bytes.Clone(tone[4:]), audiotest.Fixture(f, "tone.opus")...))
	f.Add(append(make([]byte, 0, 100), "\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...))
	f.Fuzz(func(t *testing.T, b []byte) { audiotest.Sane(t, append([]byte("OggS"), b...)) })
}
