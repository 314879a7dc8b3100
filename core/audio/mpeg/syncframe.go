package mpeg

import (
	"github.com/asrconfig/asrconfig-go/core/audio/codec"
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// MPEG audio and ADTS are streams of frames without a container. Each frame starts with sync bits
// and has its own length.

const (
	mpegHeadLen = 4
	adtsHeadLen = 7
	// Frames of one kind that must follow a candidate before it is believed, since sync bits alone
	// occur in any data: of a stream that is new, and of the one that is being read.
	confirmStart, confirmSame = 3, 2
	maxJunk                   = 256 << 10 // bytes searched for the first frame
	maxChunk                  = 256 << 10 // bytes of one read of a walk
	// bytes of the longest audio that is walked; longer audio is estimated from a few places
	maxWalk = 256 << 20
	maxEnd  = 1 << 62 // where a sparse file is cut, so that sums of positions do not overflow
	maxWork = 2 << 20 // frames and candidates looked at in one file: some 30 ms
)

// syncFrame is what a walk needs of a frame header. It is small, for a walk makes millions of them.
type syncFrame struct {
	kind    uint32 // the header bits that stay the same within a stream
	size    int32  // bytes, header included
	samples int32  // of each channel
}

const (
	kindLayer = 6 << 8    // the bits of kind with the layer; 0 for ADTS
	noKind    = 1<<32 - 1 // no frame has it
)

func (f syncFrame) isADTS() bool { return f.kind&kindLayer == 0 }

func (f syncFrame) headLen() int64 {
	if f.isADTS() {
		return adtsHeadLen
	}
	return mpegHeadLen
}

// layer returns the layer of MPEG audio, 1 to 3.
func (f syncFrame) layer() int { return int(4 - f.kind>>9&3) }

// rate returns the sampling rate in Hz.
func (f syncFrame) rate() int {
	if f.isADTS() {
		return codec.AACRates[f.kind>>2&15]
	}
	return mpegRates[f.kind>>2&3] >> mpegShift[f.kind>>11&3]
}

func parseSyncFrame(b []byte) (syncFrame, bool) {
	switch {
	case len(b) < mpegHeadLen || b[0] != 0xff:
		return syncFrame{}, false
	case b[1]&6 != 0:
		return parseMPEGHead(b)
	default:
		return parseADTSHead(b)
	}
}

// frameReader reads frame headers through a window on the file that moves forwards.
type frameReader struct {
	s     *media.File
	end   int64  // where the audio ends; tags may follow
	b     []byte // the loaded bytes
	off   int64  // where b lies in the file
	chunk int    // bytes of the next read
	work  int    // what is left of maxWork
}

func newFrameReader(s *media.File) *frameReader {
	return &frameReader{s: s, end: min(s.Size, maxEnd), chunk: media.HeadLen, work: maxWork}
}

// cutTags ends the audio, which starts at start, before the tags that follow it.
func (r *frameReader) cutTags(start int64) {
	r.end = min(tagsEnd(r.s, start), maxEnd)
	r.b = nil // tagsEnd may have overwritten the buffer that it lies in
}

// from returns the loaded bytes from pos on: at least n of them, unless the audio ends. Bytes from
// keep on stay loaded.
func (r *frameReader) from(pos, keep int64, n int) []byte {
	if i := pos - r.off; i >= 0 && i+int64(n) <= int64(len(r.b)) {
		return r.b[i:]
	}
	if pos >= r.end {
		return nil
	}
	r.load(keep, int(pos-keep)+n)
	return r.b[min(pos-r.off, int64(len(r.b))):]
}

// load reads from pos on, need bytes or more. Reads become longer: most files need one short read.
func (r *frameReader) load(pos int64, need int) {
	n := max(r.chunk, 2*need)
	if inHead := int64(len(r.s.Head)) - pos; inHead >= int64(need) {
		n = int(inHead)
	} else {
		r.chunk = min(2*r.chunk, maxChunk)
	}
	r.off, r.b = pos, r.s.At(pos, int(min(int64(n), r.end-pos)))
}

// parse parses the header at pos. Bytes from keep on stay loaded. The case of loaded bytes is that
// of from, written out for speed.
func (r *frameReader) parse(pos, keep int64) (syncFrame, bool) {
	b := r.b
	if i := pos - r.off; i >= 0 && i+adtsHeadLen <= int64(len(b)) {
		b = b[i:]
	} else {
		b = r.from(pos, keep, adtsHeadLen)
	}
	return parseSyncFrame(b)
}

// follow counts the frames of the same kind that come right after f, which is at pos, up to n. end
// reports whether the audio ends before there are n.
func (r *frameReader) follow(f syncFrame, pos int64, n int) (count int, end bool) {
	for off := pos; count < n; count++ {
		off += int64(f.size)
		if off > r.end-f.headLen() {
			return count, count > 0 || off <= r.end
		}
		next, ok := r.parse(off, pos)
		if !ok || next.kind != f.kind {
			return count, false
		}
		f = next
	}
	return count, false
}

var (
	// mpegRates are in Hz, of version 1; version 2 halves them and version 2.5 halves them again.
	// Index 3 is reserved.
	mpegRates = [4]int{44100, 48000, 32000, 0}
	mpegShift = [4]int{2, 0, 1, 0} // by version bits; 1 is reserved
	// mpegBitrates are in kbit/s: version 1 layers I to III, then versions 2 and 2.5. 0: free
	// format, which FFmpeg refuses.
	mpegBitrates = [2][4][15]int{
		{
			1: {0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
			2: {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
			3: {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
		},
		{
			1: {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
			2: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
			3: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
		},
	}
	mpegSamples = [2][4]int{{1: 384, 2: 1152, 3: 1152}, {1: 384, 2: 1152, 3: 576}}
	mpegCodecs  = [4]string{1: "mp1", 2: "mp2", 3: "mp3"}
)

// mpegFrames holds the frame that each MPEG header stands for, without padding. The index is the
// header's bits of version, layer, bit rate and sampling rate. Samples are 0 where one is reserved.
var mpegFrames = func() (t [1 << 10]syncFrame) {
	for i := range t {
		version, layer, code, rate := i>>8, 4-i>>6&3, i>>2&15, i&3
		if version == 1 || layer > 3 || code == 0 || code == 15 || rate == 3 {
			continue
		}
		f := syncFrame{kind: uint32(i)>>6<<9 | uint32(rate)<<2}
		f.samples = int32(mpegSamples[mpegLow(f)][layer])
		slot := mpegSlot(f)
		bitrate := mpegBitrates[mpegLow(f)][layer][code] * 1000
		f.size = int32(int(f.samples) * bitrate / (8 * slot * f.rate()) * slot)
		t[i] = f
	}
	return t
}()

// mpegLow is 1 for the low sampling rates of versions 2 and 2.5.
func mpegLow(f syncFrame) int {
	if f.kind>>11&3 == 3 {
		return 0
	}
	return 1
}

// mpegSlot is the unit of padding in bytes.
func mpegSlot(f syncFrame) int {
	if f.layer() == 1 {
		return 4
	}
	return 1
}

// parseMPEGHead reads the header of an MPEG audio frame. Sources: ISO/IEC 11172-3 and 13818-3;
// version 2.5 is Fraunhofer's extension to lower rates.
func parseMPEGHead(b []byte) (syncFrame, bool) {
	f := mpegFrames[int(b[1]&0x1e)<<5|int(b[2]>>2)]
	if b[2]&2 != 0 {
		// The padding is one mpegSlot, which is not called: this runs for each frame.
		f.size++
		if f.kind&kindLayer == kindLayer { // Layer I
			f.size += 3
		}
	}
	return f, f.samples > 0 && b[1] >= 0xe0
}

// mpegBitrate returns the bit/s of the MPEG audio frame that b starts with.
func mpegBitrate(b []byte, f syncFrame) int {
	if f.isADTS() || len(b) < mpegHeadLen {
		return 0
	}
	return mpegBitrates[mpegLow(f)][f.layer()][b[2]>>4] * 1000
}

// mpegChannels returns the number of channels of the MPEG audio frame that b starts with, 2 where b
// is too short to tell.
func mpegChannels(b []byte) int {
	if len(b) >= mpegHeadLen && b[3]>>6 == 3 {
		return 1
	}
	return 2
}
