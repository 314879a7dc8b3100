package isobmff

import (
	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// track is the first audio track.
type track struct {
	info   media.Info
	id     uint32
	scale  int64 // ticks per second, > 0
	header int64 // ticks that the media header claims; 0 for none
	// ticks that one sample can play by its codec; 0 when the codec does not say
	longest   int64
	samples   int64      // in the table of the index
	last      int64      // where the last chunk of them starts
	constant  int64      // size of every sample in bytes; 0 when the table lists them
	described sampleUnit // by the description of the sound
	// Opus: samples at 48 kHz that decoders drop at the start, where no edit list does
	preSkip int64
	edits   []edit
	edts    box
	stts    table
	stsc    table
	stsz    table
	chunks  table
}

// clock reads the time scale and the duration of a movie or media header; 0 where it does not know.
func (w boxReader) clock(b box) (scale, duration int64) {
	version, _, h := w.full(b, 28)
	switch {
	case version == 0 && len(h) >= 16:
		scale, duration = int64(be.Uint32(h[8:])), int64(be.Uint32(h[12:]))
		if duration == 0xffffffff {
			duration = 0
		}
	case version == 1 && len(h) >= 28:
		scale, duration = int64(be.Uint32(h[16:])), int64(be.Uint64(h[20:]))
		if duration < 0 || duration > media.MaxTicks {
			duration = 0
		}
	}
	return scale, duration
}

// parseTrack reads a trak box; nil without an error when it is no audio track.
func (w boxReader) parseTrack(trak box) (*track, error) {
	mdia, _ := w.find(trak, "mdia")
	handler, ok := w.find(mdia, "hdlr")
	if _, _, h := w.full(handler, 8); !ok || len(h) < 8 || string(h[4:8]) != "soun" {
		return nil, nil
	}
	t := &track{info: media.Info{Method: "header"}}
	if header, ok := w.find(mdia, "mdhd"); ok {
		t.scale, t.header = w.clock(header)
	}
	if t.scale <= 0 {
		return nil, media.Corrupt("has an audio track without a time scale")
	}
	if header, ok := w.find(trak, "tkhd"); ok {
		version, _, h := w.full(header, 20)
		if offset := 8 + 8*int(version&1); len(h) >= offset+4 {
			t.id = be.Uint32(h[offset:])
		}
	}
	t.edts, _ = w.path(trak, "edts", "elst")
	table, ok := w.path(mdia, "minf", "stbl")
	if !ok {
		return nil, media.Corrupt("has an audio track without a sample table")
	}
	return t, t.parseTable(w, table)
}

func (t *track) parseTable(w boxReader, table box) error {
	var described bool
	for b := range w.boxes(table.body, table.end) {
		switch string(b.kind[:]) {
		case "stsd":
			described = true
			if err := t.parseDescription(w, b); err != nil {
				return err
			}
		case "stts":
			t.stts = w.table(b, 4, 8)
		case "stsc":
			t.stsc = w.table(b, 4, 12)
		case "stsz":
			t.stsz = w.table(b, 8, 4)
			if _, _, h := w.full(b, 8); len(h) >= 8 && be.Uint32(h) > 0 {
				t.constant, t.stsz.n = int64(be.Uint32(h)), int64(be.Uint32(h[4:]))
			}
		case "stz2":
			return media.Unsupported("has a compact table of sizes (stz2 box), which is not supported")
		case "stco":
			t.chunks = w.table(b, 4, 4)
		case "co64":
			t.chunks = w.table(b, 4, 8)
		}
	}
	if !described {
		return media.Corrupt("has an audio track that does not name its codec (stsd box)")
	}
	return nil
}

// settle counts the samples of the table and reads the edits, now that the clock of the movie is
// known.
func (t *track) settle(w boxReader, moov box, movie int64) error {
	covered, err := t.covered(w)
	if err != nil {
		return err
	}
	t.samples = min(covered, t.stsz.n)
	if t.samples > 0 {
		t.last = t.chunks.value(w, t.chunks.n-1)
	}
	all, err := t.ticks(w, t.samples)
	if err != nil {
		return err
	}
	t.edits = w.parseEdits(t.edts, movie, t.scale, all)
	if t.play(all) != all {
		return nil
	}
	if e, ok := w.gapless(moov, all); ok {
		t.edits = []edit{e}
	} else if t.preSkip > 0 && len(t.edits) == 0 {
		t.edits = []edit{{t.preSkip * t.scale / 48000, media.MaxTicks}}
	}
	return nil
}

// finish returns the info of a file that has present of all ticks of media; header is what another
// part of the file claims, 0 for nothing.
func (t *track) finish(present, all, header int64) (media.Info, error) {
	play, claimed := t.play(present), t.play(all)
	if slack := int64(media.ClaimSlack * float64(t.scale)); header > 0 &&
		(header > max(all, claimed)+slack || header < min(all, claimed)-slack) {
		claimed = header
	}
	return media.FinishAt(t.info, play, claimed, t.scale)
}
