// Package mpeg measures streams of frames without a container, MPEG audio (MP3, MP2, MP1) and AAC
// in ADTS, with their tags.
package mpeg

import (
	"bytes"
	"encoding/binary"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

var be = binary.BigEndian

// IsADTS reports whether h starts with a frame of ADTS.
func IsADTS(h []byte) bool {
	_, ok := parseADTSHead(h)
	return ok
}

// IsMPEG takes an ID3v2 tag too that nothing follows.
func IsMPEG(h []byte) bool {
	f, ok := parseSyncFrame(h)
	return ok && !f.isADTS() || bytes.HasPrefix(h, []byte("ID3"))
}

// Parse reads MPEG audio and ADTS, also where something else comes before the first frame: padding
// after a tag, or the rest of a frame that a stream was cut in.
func Parse(s *media.File, base int64) (media.Info, error) {
	r := newFrameReader(s)
	first, pos, ok := r.start(base)
	if !ok {
		return media.Info{}, noFrames(s, base)
	}
	perFrame := int64(first.samples)
	var tag vbrTag
	if pos == base { // after anything else FFmpeg does not look for one, and plays it as silence
		tag = parseVBRTag(r.from(pos, pos, vbrTagLen), first, s.Size-pos)
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
		return media.Finish(info, tag.claim(perFrame), 0)
	}
	samples, method, dense := r.count(first, audio)
	if !dense && base == 0 && pos > 0 {
		// perhaps a video, with some frames of sound between its pictures
		return media.Info{}, media.NotAudio(s)
	}
	info.Method = method
	return media.Finish(info, tag.play(samples, perFrame), tag.claim(perFrame))
}

// start finds the first frame. At base itself one other that follows is enough, or the end.
func (r *frameReader) start(base int64) (syncFrame, int64, bool) {
	f, ok := parseSyncFrame(r.from(base, base, adtsHeadLen))
	if ok {
		tag := parseVBRTag(r.from(base, base, vbrTagLen), f, r.end-base)
		if n, end := r.follow(f, base, confirmStart); n > 0 || end || tag.skip {
			return f, base, true
		}
	}
	// only believed at the start: sync bits and zeros are all that such a header is made of
	return r.sync(base, base+maxJunk, noKind)
}

// describe takes channels from the first frame of audio where it can be read: that of a tag may
// have others.
func (r *frameReader) describe(f syncFrame, pos, audio int64) media.Info {
	if g, ok := r.parse(audio, pos); ok && g.kind == f.kind {
		pos = audio
	}
	b := r.from(pos, pos, adtsHeadLen+maxPCELen)
	info := media.Info{SampleRate: f.rate()}
	if f.isADTS() {
		info.Codec, info.Channels = "aac", adtsChannels(b)
	} else {
		info.Codec, info.Channels = mpegCodecs[f.layer()], mpegChannels(b)
	}
	return info
}

func noFrames(s *media.File, base int64) error {
	if h := s.At(base, 10); bytes.HasPrefix(h, []byte("ID3")) {
		return media.Corrupt("ends inside its ID3 tag and holds no audio")
	}
	if base > 0 {
		return media.Corrupt("holds no audio after its ID3 tag")
	}
	return media.NotAudio(s)
}
