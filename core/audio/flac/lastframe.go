package flac

import (
	"bytes"

	"github.com/mewkiz/flac/frame"
	"github.com/mewkiz/flac/meta"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// MaxFrameSamples is the most samples that a FLAC frame holds.
const MaxFrameSamples = 65535

// Bounds of the search for the last frame, which hostile files would make long.
const (
	maxSyncs      = 1 << 12 // places that start with the sync code
	maxHeaders    = 32      // valid frame headers among them
	maxSummed     = 8 << 20 // bytes whose checksums are computed
	maxDecoded    = 3       // frames, as decoding takes long
	maxDecodedLen = 1 << 18 // bytes of one frame
)

// flacStream is a native FLAC file whose last frame is searched for: Parse calls readFirstFrame,
// then endSample.
type flacStream struct {
	s     *media.File
	si    *meta.StreamInfo
	start int64  // offset of the first frame in the file
	first int64  // number of its first sample: not 0 in a piece cut from a longer file
	sync  string // the sync code of its frames
}

// readFirstFrame reads the header of the first frame, with which b starts. Its sample rate must be
// that of the stream info. A file with a fixed block size numbers frames instead of samples (RFC
// 9639, 9.1.5): the block size is then the first frame's, whatever the stream info says.
func (f *flacStream) readFirstFrame(b []byte) error {
	if _, rate, ok := parseAnyHeader(b); ok && rate != 0 && rate != int(f.si.SampleRate) {
		return media.Corrupt("has frames of %d Hz, though its header says %d Hz", rate,
			f.si.SampleRate)
	}
	head, ok := ParseFrameHeader(b, f.si)
	if !ok {
		return nil
	}
	f.sync = string(b[:2])
	if fixedSize := b[1]&1 == 0; fixedSize && head.Samples <= MaxFrameSamples {
		f.si.BlockSizeMax = uint16(head.Samples)
		head, _ = ParseFrameHeader(b, f.si)
	}
	f.first = head.first
	return nil
}

// endSample returns the number of the sample after the last whole frame, 0 when the file has none.
// ok is false when there is none in the last media.MaxRead bytes of a longer file. It reads as many
// bytes of the end of the file as the longest frame has, then four times as many, and so on.
func (f *flacStream) endSample() (sample int64, ok bool) {
	window := int64(16 << 10)
	if f.si.FrameSizeMax > 0 {
		window = int64(f.si.FrameSizeMax) + 256 // for a tag after it
	}
	for ; ; window *= 4 {
		off := max(f.start, f.s.Size-min(window, media.MaxRead))
		tail := f.s.Alone(off, int(f.s.Size-off))
		sample, ok = f.lastFrame(tail[:int64(len(tail))-min(media.TailTag(tail), int64(len(tail)))])
		if ok || off == f.start {
			return sample, true
		}
		if window >= media.MaxRead { // foreign data after the audio
			return 0, false
		}
	}
}

// lastFrame finds the last whole frame in b and returns the number of the sample behind it. A frame
// ends with a checksum that makes the CRC-16 of all its bytes 0 (RFC 9639, 9.3). It is whole when
// that holds up to the next frame header or the end of b, or else, with other bytes after it, when
// it can be decoded. A truncated last frame does not count, as no decoder plays it.
func (f *flacStream) lastFrame(b []byte) (sample int64, ok bool) {
	next, summed, decoded := len(b), 0, 0
	for i, headers, syncs := len(b), 0, 0; headers < maxHeaders && syncs < maxSyncs &&
		summed < maxSummed; syncs++ {
		if i = media.LastIndex(b[:i], f.sync); i < 0 {
			break
		}
		head, ok := ParseFrameHeader(b[i:], f.si)
		if !ok {
			continue
		}
		headers++
		summed += next - i
		if crc16(b[i:next]) == 0 {
			return head.end(), true
		}
		if decoded++; decoded <= maxDecoded && f.decodes(b[i:]) {
			return head.end(), true
		}
		next = i
	}
	return 0, false
}

// decodes reports whether b starts with a whole frame.
func (f *flacStream) decodes(b []byte) (ok bool) {
	defer func() {
		if recover() != nil { // the decoder may panic on malformed frames
			ok = false
		}
	}()
	decoder, err := frame.New(bytes.NewReader(b[:min(len(b), maxDecodedLen)]))
	if err != nil {
		return false
	}
	if decoder.BitsPerSample == 0 { // its header refers to the stream info
		decoder.BitsPerSample = f.si.BitsPerSample
	}
	return decoder.Parse() == nil
}
