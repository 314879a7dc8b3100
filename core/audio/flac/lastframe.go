package flac

import (
	"bytes"

	"github.com/mewkiz/flac/frame"
	"github.com/mewkiz/flac/meta"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	MaxFrameSamples = 65535 // no FLAC frame holds more
	// how many frame headers are tried from the end, how many look like one at first, and how many
	// bytes are summed
	maxTried      = 32
	maxSyncs      = 1 << 12
	maxFrameSum   = 8 << 20
	maxDecoded    = 3       // frames, as decoding takes long
	maxDecodedLen = 1 << 18 // bytes of one
)

// flacStream is a native FLAC file, to find the last frame of.
type flacStream struct {
	s     *media.File
	si    *meta.StreamInfo
	start int64  // offset of the first frame
	first int64  // the sample that it starts with: not 0 in a piece cut from a longer file
	sync  string // how every frame begins
}

// look reads the header of the first frame. It must fit the stream info; of the block size, the
// frames are believed.
func (f *flacStream) look(b []byte) error {
	if rate, ok := frameRate(b); ok && rate != 0 && rate != int(f.si.SampleRate) {
		return media.Corrupt("has frames of %d Hz, though its header says %d Hz", rate,
			f.si.SampleRate)
	}
	head, ok := ParseFrameHeader(b, f.si)
	if !ok {
		return nil
	}
	f.sync = string(b[:2])
	if b[1]&1 == 0 && head.Samples <= MaxFrameSamples {
		f.si.BlockSizeMax = uint16(head.Samples)
		head, _ = ParseFrameHeader(b, f.si)
	}
	f.first = head.first
	return nil
}

// end returns the position behind the last whole frame, by looking for frame headers backwards from
// the end of the file.
func (f *flacStream) end() (position int64, ok bool) {
	window := int64(16 << 10)
	if f.si.FrameSizeMax > 0 {
		window = int64(f.si.FrameSizeMax) + 256 // and a tag
	}
	for ; ; window *= 4 {
		off := max(f.start, f.s.Size-min(window, media.MaxRead))
		tail := f.s.Alone(off, int(f.s.Size-off))
		position, ok = f.lastFrame(tail[:len(tail)-tagLen(tail)])
		if ok || off == f.start {
			return position, true
		}
		if window >= media.MaxRead { // foreign data behind the audio
			return 0, false
		}
	}
}

// lastFrame finds the last whole frame in b. A frame is whole when its checksum is right up to the
// end of b or up to the next frame, or else when it can be decoded. A last frame that is cut does
// not count, as no decoder plays it.
func (f *flacStream) lastFrame(b []byte) (position int64, ok bool) {
	next, summed, decoded := len(b), 0, 0
	for i, tried, syncs := len(b), 0, 0; tried < maxTried && syncs < maxSyncs &&
		summed < maxFrameSum; syncs++ {
		if i = media.LastIndex(b[:i], f.sync); i < 0 {
			break
		}
		head, ok := ParseFrameHeader(b[i:], f.si)
		if !ok {
			continue
		}
		tried++
		summed += next - i
		if crc16(b[i:next]) == 0 {
			return head.end(), true
		}
		if next < len(b) {
			summed += len(b) - i
			if crc16(b[i:]) == 0 {
				return head.end(), true
			}
		}
		if decoded++; decoded <= maxDecoded && f.decodes(b[i:]) {
			return head.end(), true
		}
		next = i
	}
	return 0, false
}

// decodes reports whether a whole frame starts b.
func (f *flacStream) decodes(b []byte) (ok bool) {
	defer func() {
		if recover() != nil { // the decoder is not made for hostile bytes
			ok = false
		}
	}()
	one, err := frame.New(bytes.NewReader(b[:min(len(b), maxDecodedLen)]))
	if err != nil {
		return false
	}
	if one.BitsPerSample == 0 {
		one.BitsPerSample = f.si.BitsPerSample
	}
	return one.Parse() == nil
}

// tagLen is the length of the ID3v1 or APEv2 tag that some taggers append. Unlike tagsEnd it looks
// at bytes that were read already, and saves every file a system call.
func tagLen(tail []byte) int {
	n := len(tail)
	if n >= 128 && string(tail[n-128:n-125]) == "TAG" {
		return 128
	}
	if n >= 32 && string(tail[n-32:n-24]) == "APETAGEX" {
		size := int64(le.Uint32(tail[n-20:])) // of items and footer
		if tail[n-9]&0x80 != 0 {              // and of a header
			size += 32
		}
		return int(min(size, int64(n)))
	}
	return 0
}
