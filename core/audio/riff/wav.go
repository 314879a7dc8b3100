package riff

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
	"github.com/asrconfig/asrconfig-go/core/audio/mpeg"
	"github.com/asrconfig/asrconfig-go/core/audio/pcm"
)

// IsWAV reports whether h starts a WAV file, of any of its kinds.
func IsWAV(h []byte) bool {
	if len(h) < 12 || string(h[8:12]) != "WAVE" {
		return false
	}
	id := string(h[:4])
	return id == "RIFF" || id == "RF64" || id == "BW64" || id == "RIFX"
}

// ParseWAV reads RIFF, its big-endian twin RIFX, and the 64-bit RF64 and BW64. The RIFF size is not
// used: writers get it wrong. Sources: Microsoft "Multiple Channel Audio Data and WAVE Files", EBU
// Tech 3306 (RF64), ITU-R BS.2088 (BW64).
func ParseWAV(s *media.File, base int64) (media.Info, error) {
	style := &riffChunks
	if string(s.At(base, 4)) == "RIFX" {
		style = &rifxChunks
	}
	return parseWave(s, style, base+12)
}

// dataMark is how many bytes of samples the digest of a file takes in, to tell recordings apart.
const dataMark = 256

// wave is what the chunks of a file say, as far as they have been read.
type wave struct {
	s        *media.File
	style    *chunkStyle
	fmt      *wavFormat
	fact     int64 // samples per channel, of a compressed file; 0: not stated
	ds64Size int64 // bytes of data that a ds64 chunk states; openSize: none
	data     chunk // the first data chunk that is not empty; its body is 0 before it is found
	empty    bool  // there is a data chunk of size 0
	further  int64 // bytes in data chunks after the first
	complete bool  // whole chunks, and nothing else, follow up to the end of the file
}

func parseWave(s *media.File, style *chunkStyle, off int64) (media.Info, error) {
	w := wave{s: s, style: style, ds64Size: openSize}
	n := 0
	for ; n < maxChunks; n++ {
		c, ok := style.read(s, off)
		if !ok || w.data.body != 0 && !printable(c.id) {
			break // what follows the data and is no chunk does not matter
		}
		if err := w.take(&c); err != nil {
			return media.Info{}, err
		}
		off = style.next(s, c)
	}
	switch {
	case w.fmt == nil && w.data.body != 0:
		return media.Info{}, media.Corrupt("has no fmt chunk with its data")
	case w.data.body != 0:
		return w.length()
	case w.empty:
		return media.Info{}, media.Corrupt("holds no audio")
	case n == maxChunks:
		return media.Info{}, media.Corrupt("has more than %d chunks before its data", maxChunks)
	default:
		return media.Info{}, media.Corrupt("ends before its data chunk")
	}
}

// take applies one chunk. It may correct the size of a data chunk.
func (w *wave) take(c *chunk) (err error) {
	switch string(c.id[:]) {
	case "fmt ":
		if w.fmt == nil { // decoders go by the first
			w.fmt, err = parseWAVFormat(c.peek, w.style.order)
		}
	case "ds64":
		w.ds64Size = ds64DataSize(c.peek)
	case "fact":
		if len(c.peek) >= 4 {
			w.fact = int64(w.style.order.Uint32(c.peek))
		}
	case "data":
		c.size = w.dataSize(*c)
		switch {
		case c.size == 0:
			w.empty = true
		case w.data.body == 0:
			w.data = *c
		case c.size != openSize:
			w.further = min(w.further+c.size, pcm.MaxClaim)
		}
	}
	return err
}

// ds64DataSize returns the 64-bit size of the data chunk, openSize where a writer left it open.
func ds64DataSize(body []byte) int64 {
	if len(body) < 16 {
		return openSize
	}
	if n := le.Uint64(body[8:]); n > 0 && n < pcm.MaxClaim {
		return int64(n)
	}
	return openSize
}

// dataSize returns how many bytes a data chunk claims, openSize where it goes on to the end of the
// file.
func (w *wave) dataSize(c chunk) int64 {
	switch {
	case (c.size == 0xffffffff || c.size == 0) && w.ds64Size != openSize:
		return w.ds64Size
	case !w.style.wide && w.style.isOpen(w.s, c):
		return openSize
	case c.size != 0 || w.complete:
		return c.size
	}
	if w.complete = w.style.reachEnd(w.s, c.body); w.complete {
		return 0
	}
	return openSize // a recording that was never closed
}

// length returns how much audio the data holds. No decoder plays further data chunks: they count
// for what the file claims alone.
func (w *wave) length() (media.Info, error) {
	f, available := w.fmt, max(0, w.s.Size-w.data.body)
	if w.data.body+dataMark > int64(len(w.s.Head)) {
		w.s.At(w.data.body, dataMark) // for the digest: long headers are often equal
	}
	if f.codec == "" {
		return w.mpeg(available)
	}
	info := media.Info{SampleRate: f.rate, Channels: f.channels, Bits: f.bits, Codec: f.codec,
		Method: "header"}
	if w.data.size == openSize {
		info.Method = "tail"
		return media.Finish(info, f.Frames(available), 0)
	}
	samples := f.Frames(min(available, w.data.size))
	return media.Finish(info, samples, w.claimed())
}

// mpeg takes length and format from the MPEG frames in the data: fmt and fact chunks are often
// wrong there.
func (w *wave) mpeg(available int64) (media.Info, error) {
	s, size := w.s, w.s.Size
	if w.data.size != openSize {
		s.Size = min(size, w.data.body+w.data.size)
		defer func() { s.Size = size }()
	}
	info, err := mpeg.Parse(s, w.data.body)
	if err != nil {
		return media.Info{}, media.Corrupt(
			"is a WAV file with MPEG audio inside, but holds no frames of it")
	}
	if w.data.size > available && info.ClaimedS == nil {
		claimed := info.DurationS * float64(w.data.size) / float64(available)
		info.ClaimedS = &claimed
	}
	return info, nil
}

// claimed returns the samples per channel that the sizes and the fact chunk claim. A fact chunk
// that ends inside the last block is ignored: decoders play that block to its end.
func (w *wave) claimed() int64 {
	f := w.fmt
	claimed := f.Frames(w.data.size) + f.Frames(w.further)
	if missing := claimed - w.fact; f.Samples > 1 && w.fact > 0 && w.further == 0 &&
		(missing < 0 || missing >= f.Samples) {
		if w.fact != claimed*int64(f.channels) { // some writers count the samples of all channels
			return w.fact
		}
	}
	return claimed
}

// w64Head counts the bytes of the file's GUID and size, and of the GUID "wave".
const w64Head = 40

// ParseW64 reads Sony Wave64: WAV with GUIDs as ids, sizes of 64 bits that count the head, and
// chunks at multiples of 8. Source: Sony Pictures Digital, "Wave64 File Format".
func ParseW64(s *media.File, base int64) (media.Info, error) {
	if h := s.At(base, w64Head); len(h) < w64Head || string(h[24:28]) != "wave" {
		return media.Info{}, media.Corrupt("is a Wave64 file without waves")
	}
	return parseWave(s, &w64Chunks, base+w64Head)
}
