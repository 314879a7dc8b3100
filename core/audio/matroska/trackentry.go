package matroska

import (
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

const (
	idTrackEntry      = 0xae
	idTrackNumber     = 0xd7
	idTrackType       = 0x83
	idCodecID         = 0x86
	idCodecPrivate    = 0x63a2
	idCodecDelay      = 0x56aa
	idDefaultDuration = 0x23e383
	idAudio           = 0xe1
	idSampling        = 0xb5
	idOutputSampling  = 0x78b5
	idChannels        = 0x9f
	idBitDepth        = 0x6264
	idEncodings       = 0x6d80
	idEncoding        = 0x6240
	idCompression     = 0x5034
	idAlgorithm       = 0x4254
	idSettings        = 0x4255
	idEncryption      = 0x5035

	typeAudio      = 2
	stripsHeaders  = 3
	maxPrivateLen  = 512 // of the codec's own header, but for Vorbis, whose end matters
	maxTrackNumber = 1 << 56
)

// track is the first audio track.
type track struct {
	info     media.Info
	number   uint64
	id       string  // Matroska's name of the codec
	private  element // the codec's own header
	delay    float64 // s that decoders drop at the start
	fallback float64 // s of a frame without a duration; 0 when unknown
	prefix   []byte  // what is stripped from the start of every frame
	opaque   bool    // frames are compressed again
	preSkip  int64   // Opus: samples that decoders drop at the start
	packets  packets
}

func (m *document) tracks(e element) error {
	if m.track != nil {
		return nil
	}
	for c := range m.w.elements(e) {
		if c.id != idTrackEntry {
			continue
		}
		t, err := m.w.parseTrackEntry(c)
		if err != nil {
			return err
		}
		if t == nil || m.track != nil {
			m.others++
			continue
		}
		m.track = t
	}
	if m.track == nil {
		return nil
	}
	return m.track.codec(m.w)
}

// parseTrackEntry reads one track; nil without an error when it is not audio.
func (w ebmlReader) parseTrackEntry(e element) (*track, error) {
	t := &track{info: media.Info{SampleRate: 8000, Channels: 1}} // the defaults of RFC 9559
	audio := false
	for c := range w.elements(e) {
		switch c.id {
		case idTrackNumber:
			t.number = min(w.number(c), maxTrackNumber)
		case idTrackType:
			audio = w.number(c) == typeAudio
		case idCodecID:
			t.id = strings.TrimRight(string(w.At(c.body, int(min(64, c.size())))), "\x00")
		case idCodecPrivate:
			t.private = c
		case idCodecDelay:
			t.delay = float64(min(w.number(c), media.MaxTicks)) / nanos
		case idDefaultDuration:
			t.fallback = float64(min(w.number(c), media.MaxTicks)) / nanos
		case idAudio:
			t.parseAudio(w, c)
		case idEncodings:
			if err := t.parseEncodings(w, c); err != nil {
				return nil, err
			}
		}
	}
	if !audio {
		return nil, nil
	}
	return t, nil
}

func (t *track) parseAudio(w ebmlReader, e element) {
	output := 0.0
	for c := range w.elements(e) {
		switch c.id {
		case idSampling:
			t.info.SampleRate = hertz(w.real(c))
		case idOutputSampling:
			output = w.real(c)
		case idChannels:
			t.info.Channels = int(min(w.number(c), 1<<16))
		case idBitDepth:
			t.info.Bits = int(min(w.number(c), 1<<10))
		}
	}
	if output >= 1 {
		t.info.SampleRate = hertz(output)
	}
}

// hertz rounds a sample rate; 0 if it is out of range.
func hertz(x float64) int {
	if x < 1 || x > 1<<31 {
		return 0
	}
	return int(x + 0.5)
}

// parseEncodings reads what was done to every frame: mkvmerge used to strip bytes that all frames
// start with.
func (t *track) parseEncodings(w ebmlReader, e element) error {
	for c := range w.elements(e) {
		for c := range w.elements(c) {
			switch c.id {
			case idEncryption:
				return media.Unsupported("is encrypted")
			case idCompression:
				algorithm := uint64(0)
				for c := range w.elements(c) {
					switch c.id {
					case idAlgorithm:
						algorithm = w.number(c)
					case idSettings:
						t.prefix = append([]byte(nil),
							w.At(c.body, int(min(c.size(), packetPeek)))...)
					}
				}
				t.opaque = algorithm != stripsHeaders
			}
		}
	}
	return nil
}

// skip returns the samples that decoders drop at the start.
func (t *track) skip() int64 {
	if t.preSkip > 0 {
		return t.preSkip
	}
	return int64(min(t.delay*float64(t.info.SampleRate)+0.5, media.MaxTicks))
}
