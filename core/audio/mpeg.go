package audio

import "bytes"

// Bytes of a free format frame: 8 kbit/s at the highest rate, 640 kbit/s (the most that LAME makes) at the lowest.
const minFree, maxFree = 24, 5760

var (
	// mpegRates are in Hz, of version 1; version 2 halves them and version 2.5 once more. Index 3 is reserved.
	mpegRates = [4]int{44100, 48000, 32000, 0}
	mpegShift = [4]int{2, 0, 1, 0} // by version bits; 1 is reserved
	// mpegBitrates are in kbit/s: version 1 layers I to III, then versions 2 and 2.5. 0: free format.
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

// mpegFrames holds every frame without padding, by the bits of version and layer, bit rate and sampling rate. Samples are 0
// where these are reserved.
var mpegFrames = func() (t [1 << 10]syncFrame) {
	for i := range t {
		version, layer, code, rate := i>>8, 4-i>>6&3, i>>2&15, i&3
		if version == 1 || layer > 3 || code == 15 || rate == 3 {
			continue
		}
		f := syncFrame{kind: uint32(i)>>6<<9 | uint32(rate)<<2}
		f.samples = int32(mpegSamples[mpegLow(f)][layer])
		slot := mpegSlot(f)
		f.size = int32(int(f.samples) * mpegBitrates[mpegLow(f)][layer][code] * 1000 / (8 * slot * f.rate()) * slot)
		if code == 0 {
			f.kind |= kindFree
		}
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

// parseMPEGHead reads the header of an MPEG audio frame. Sources: ISO/IEC 11172-3 and 13818-3; version 2.5 is Fraunhofer's
// extension to lower rates.
func parseMPEGHead(b []byte) (syncFrame, bool) {
	f := mpegFrames[int(b[1]&0x1e)<<5|int(b[2]>>2)]
	if b[2]&2 != 0 {
		f.size++
		if f.kind&kindLayer == kindLayer { // Layer I
			f.size += 3
		}
	}
	return f, f.samples > 0 && b[1] >= 0xe0
}

// mpegBitrate gives the bit/s of the MPEG audio frame that b starts with, 0 for free format.
func mpegBitrate(b []byte, f syncFrame) int {
	if f.isADTS() || len(b) < mpegHeadLen {
		return 0
	}
	return mpegBitrates[mpegLow(f)][f.layer()][b[2]>>4] * 1000
}

func mpegChannels(b []byte) int {
	if len(b) >= mpegHeadLen && b[3]>>6 == 3 {
		return 1
	}
	return 2
}

// parseFrames reads MPEG audio and ADTS, also where something else comes before the first frame: padding behind a tag, or
// the rest of a frame that a stream was cut in.
func parseFrames(s *source, base int64) (Info, error) {
	r := newFrames(s)
	first, pos, ok := r.start(base + frontAPE(s, base))
	if !ok {
		return Info{}, noFrames(s, base)
	}
	perFrame := int64(first.samples)
	var tag vbrTag
	if pos == base { // behind anything else FFmpeg does not look for one, and plays it as silence
		tag = parseVBRTag(r.from(pos, pos, vbrTagLen), first, s.size-pos)
	}
	audio := pos
	if tag.skip {
		audio += int64(first.size)
	}
	info := r.describe(first, pos, audio)
	ok = r.agrees(tag, first, pos)
	if !ok {
		r.cutTags(audio)
		ok = r.agrees(tag, first, pos)
	}
	if ok {
		info.Method = "header"
		return finish(info, tag.claim(perFrame), 0)
	}
	held, method, dense := r.count(first, audio)
	if !dense && base == 0 && pos > 0 {
		return Info{}, notAudio(s.at(0, 16)) // a film perhaps, with some frames of sound between its pictures
	}
	info.Method = method
	return finish(info, tag.play(held, perFrame), tag.claim(perFrame))
}

// start finds the first frame. At base itself one other that follows is enough, or the end.
func (r *frames) start(base int64) (syncFrame, int64, bool) {
	f, ok := parseSyncFrame(r.from(base, base, adtsHeadLen))
	if ok && f.kind&kindFree != 0 {
		f, ok = r.freeFormat(f, base)
	}
	if ok {
		tag := parseVBRTag(r.from(base, base, vbrTagLen), f, r.end-base)
		if n, end := r.follow(f, base, confirmStart); n > 0 || end || tag.skip {
			return f, base, true
		}
	}
	r.free = 0 // only believed at the start: sync bits and zeros are all that such a header is made of
	return r.sync(base, base+maxJunk, noKind)
}

// freeFormat finds the size of a frame that does not tell it: the distance to the next three headers of its kind.
func (r *frames) freeFormat(f syncFrame, pos int64) (syncFrame, bool) {
	pad := f.size
	for n := int32(minFree); n <= maxFree; n++ {
		r.free = n
		f.size = n + pad
		if b := r.from(pos+int64(f.size), pos, 2); len(b) < 2 || b[0] != 0xff || b[1]&0xe0 != 0xe0 {
			continue
		}
		if found, _ := r.follow(f, pos, confirmStart); found == confirmStart {
			return f, true
		}
	}
	r.free = 0
	return f, false
}

// describe takes channels from the first frame of audio where it can be read: that of a tag may have others.
func (r *frames) describe(f syncFrame, pos, audio int64) Info {
	if g, ok := r.at(audio, pos); ok && g.kind == f.kind {
		pos = audio
	}
	b := r.from(pos, pos, adtsHeadLen+maxPCELen)
	info := Info{SampleRate: f.rate()}
	if f.isADTS() {
		info.Codec, info.Channels = "aac", adtsChannels(b)
	} else {
		info.Codec, info.Channels = mpegCodecs[f.layer()], mpegChannels(b)
	}
	return info
}

// frontAPE gives the length of an APEv2 tag in front, 0 without one.
func frontAPE(s *source, base int64) int64 {
	if b := s.at(base, apeFootLen); len(b) == apeFootLen && string(b[:8]) == "APETAGEX" {
		return apeFootLen + int64(le.Uint32(b[12:]))
	}
	return 0
}

// noFrames says why there is nothing to play.
func noFrames(s *source, base int64) error {
	if h := s.at(base, 10); bytes.HasPrefix(h, []byte("ID3")) {
		return corrupt("ends inside its ID3 tag and holds no audio")
	}
	if base > 0 {
		return corrupt("holds no audio behind its ID3 tag")
	}
	return notAudio(s.at(0, 16))
}
