package mpeg

const (
	// frame header, side information, the longest tag with its LAME extension
	vbrTagLen = 4 + 32 + 16 + 100 + 4 + 24
	// samples that every Layer III decoder puts in front; gapless ones drop them again
	decoderDelay = 529
)

// vbrTag is what an encoder wrote into the first frame, in place of audio. The zero value is:
// nothing.
type vbrTag struct {
	skip          bool // the frame is not audio
	constant      bool // "Info": all frames have one bit rate
	xing          bool
	frames, bytes int64 // behind the frame; with it. 0 when not told
	delay, pad    int64 // samples to drop in front and at the end of the last frame
}

// parseVBRTag reads the tag of frame f; remaining is the bytes of the file from it on. Sources:
// LAME's "Mp3 Info Tag", Fraunhofer's VBRI.
func parseVBRTag(b []byte, f syncFrame, remaining int64) (t vbrTag) {
	if f.isADTS() || f.layer() != 3 {
		return t
	}
	side := 32
	if low, mono := mpegLow(f) == 1, mpegChannels(b) == 1; low && mono {
		side = 9
	} else if low || mono {
		side = 17
	}
	switch {
	case hasAt(b, 4+side, "Info"), hasAt(b, 4+side, "Xing"):
		t.parseXing(b[4+side:])
	case hasAt(b, 4+32, "VBRI\x00\x01") && len(b) >= 36+18:
		t.bytes, t.frames = int64(be.Uint32(b[36+10:])), int64(be.Uint32(b[36+14:]))
	}
	t.skip = t.frames > 0 || t.bytes > 0
	if over := remaining - mpegHeadLen - t.bytes; t.bytes > 0 && over > t.bytes/16 {
		t.pad = 0 // more comes behind, joined: what was the end is not, for FFmpeg too
	}
	return t
}

func hasAt(b []byte, i int, text string) bool {
	return len(b) >= i+len(text) && string(b[i:i+len(text)]) == text
}

func (t *vbrTag) parseXing(b []byte) {
	t.xing, t.constant = true, b[0] == 'I'
	if len(b) < 8 {
		return
	}
	flags := b[7]
	b = b[8:]
	field := func(flag byte, n int) (v int64) {
		if flags&flag == 0 || len(b) < n {
			return 0
		}
		v = int64(be.Uint32(b))
		b = b[n:]
		return v
	}
	t.frames, t.bytes = field(1, 4), field(2, 4)
	field(4, 100) // places to seek to
	field(8, 4)   // quality
	if hasAt(b, 0, "LAME") || hasAt(b, 0, "Lavf") || hasAt(b, 0, "Lavc") {
		t.parseGaps(b)
	}
}

// parseGaps takes what encoder and decoder add from the LAME extension, as FFmpeg does: of the
// encoders it names only.
func (t *vbrTag) parseGaps(b []byte) {
	if len(b) < 24 {
		return
	}
	t.delay = int64(b[21])<<4 + int64(b[22])>>4 + decoderDelay
	t.pad = max(0, int64(b[22]&15)<<8+int64(b[23])-decoderDelay)
}

// play returns how many of the samples in all frames are heard. Padding is dropped at the end that
// the tag has, even when more follows.
func (t *vbrTag) play(samples, perFrame int64) int64 {
	end := t.frames * perFrame
	drop := t.delay
	if end > 0 && t.pad > 0 {
		drop += max(0, min(samples, end)-max(0, end-t.pad))
	}
	return max(0, samples-drop)
}

// claim returns the samples that would be heard of the tag's frame count; 0 without one.
func (t *vbrTag) claim(perFrame int64) int64 {
	if t.frames == 0 {
		return 0
	}
	return t.play(t.frames*perFrame, perFrame)
}

// agrees reports whether the tag of the frame at pos has both lengths, and they agree with the
// bytes and bit rates of the audio. Only then is it trusted without walking the frames.
func (r *frameReader) agrees(t vbrTag, f syncFrame, pos int64) bool {
	have, size := r.end-pos, int64(f.size)
	if !t.xing || t.frames == 0 || t.bytes != have && t.bytes != have-size {
		return false
	}
	rates := &mpegBitrates[mpegLow(f)][3]
	lowest, highest := rates[1]*1000, rates[len(rates)-1]*1000
	if t.constant {
		next, ok := r.parse(pos+size, pos)
		if !ok || next.kind != f.kind {
			return false
		}
		lowest = mpegBitrate(r.from(pos+size, pos, adtsHeadLen), next)
		highest = lowest
	}
	// times the rate, as frames have no whole number of bytes
	bits := (have - size) * 8 * int64(f.rate())
	lower := (t.frames - 1) * int64(f.samples) * int64(lowest)
	upper := (t.frames + 1) * int64(f.samples) * int64(highest)
	return lower <= bits && bits <= upper
}
