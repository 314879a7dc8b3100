package mpeg

import (
	"bytes"

	"github.com/asrconfig/asrconfig-go/core/audio/media"
)

// sync looks for a frame from pos up to limit that others follow: fewer are enough for a frame of
// the given kind, and near the end of the audio still fewer.
func (r *frameReader) sync(pos, limit int64, kind uint32) (syncFrame, int64, bool) {
	for pos < min(limit, r.end-mpegHeadLen) && r.work > 0 {
		b := r.from(pos, pos, adtsHeadLen)
		i := bytes.IndexByte(b[:min(int64(len(b)), limit-pos)], 0xff)
		if i < 0 {
			if len(b) == 0 {
				break
			}
			pos += int64(len(b))
			continue
		}
		pos += int64(i)
		r.work--
		if f, ok := r.parse(pos, pos); ok {
			need := confirmStart
			if f.kind == kind {
				need = confirmSame
			}
			r.work--
			if n, end := r.follow(f, pos, need); n == need || end && f.kind == kind {
				return f, pos, true
			}
		}
		pos++
	}
	return syncFrame{}, 0, false
}

type walkResult struct {
	samples     int64 // of whole frames, at the rate of the first
	cut         int64 // samples of a last frame that is cut short
	bytes       int64 // of frames
	first, last int64 // where the first frame starts and the last one ends
	done        bool  // the end was reached
}

// walk hops from frame to frame from pos up to to, and over what is no frame. like is a frame of
// the stream.
func (r *frameReader) walk(like syncFrame, pos, to int64) walkResult {
	t := walkResult{first: -1}
	run := like // the frames that the walk is among; samples of them in the sum
	sum := int64(0)
	for pos <= to-mpegHeadLen && r.work > 0 {
		f, ok := r.parse(pos, pos)
		if !ok || f.kind != run.kind {
			if f, pos, ok = r.sync(pos, to, run.kind); !ok {
				break
			}
			if f.kind != run.kind { // another stream, perhaps of another rate
				t.samples += atRate(sum, run, like)
				run, sum = f, 0
			}
		}
		r.work--
		if t.first < 0 {
			t.first, t.last = pos, pos
		}
		next := pos + int64(f.size)
		if next > to {
			if !f.isADTS() {
				t.cut = atRate(int64(f.samples), f, like)
			}
			break
		}
		sum += int64(f.samples)
		t.bytes += int64(f.size)
		pos, t.last = next, next
	}
	t.samples += atRate(sum, run, like)
	t.done = r.work > 0
	return t
}

// atRate turns samples among frames like from into as many seconds of frames like to.
func atRate(samples int64, from, to syncFrame) int64 {
	if from.kind == to.kind {
		return samples
	}
	return int64(float64(samples)*float64(to.rate())/float64(from.rate()) + 0.5)
}

const (
	// bytes of audio that are read in one go rather than looked at in places
	walkAnyway   = 64 << 10
	places       = 6 // looked at for a constant bit rate, beside the end
	tailLen      = 16 << 10
	maxSpan      = 1 << 46 // bytes for which sums here do not overflow
	samplings    = 64      // places of a very long file
	sampledLen   = 64 << 10
	maxSyncFrame = 8 << 10 // bytes of a frame, at most
)

// count returns the samples in all frames from start on, of which first is one, and how they were
// found. dense is false when most of the bytes are no frames.
func (r *frameReader) count(first syncFrame, start int64) (samples int64, method string,
	dense bool) {
	span := r.end - start
	switch {
	case span <= walkAnyway:
		r.chunk = walkAnyway
	case span < maxSpan:
		if n, ok := r.constant(first, start); ok {
			return n * int64(first.samples), "tail", true
		}
	}
	if span <= maxWalk {
		if t := r.walk(first, start, r.end); t.done {
			return t.samples + t.cut, "walked", t.bytes >= span/2
		}
	}
	samples, dense = r.estimate(first, start)
	return samples, "estimated", dense
}

// constant counts the frames of a stream of one bit rate without reading it: frame i starts at i
// times the mean size, rounded by the padding. A frame of another size anywhere, or anything
// between frames, moves all later ones off that grid.
func (r *frameReader) constant(first syncFrame, start int64) (n int64, ok bool) {
	bitrate := mpegBitrate(r.from(start, start, adtsHeadLen), first)
	if bitrate == 0 {
		return 0, false
	}
	grid := frameGrid{first.kind, bitrate, int64(first.samples) * int64(bitrate) / 8,
		int64(first.rate()), int64(mpegSlot(first))}
	for k := range int64(places) {
		f, pos, ok := r.place(first, start+(r.end-start)/places*k)
		if _, on := grid.number(r, f, pos, start); !ok || !on {
			return 0, false
		}
	}
	f, pos, ok := r.place(first, max(start, r.end-tailLen))
	for ok {
		i, on := grid.number(r, f, pos, start)
		if !on {
			return 0, false
		}
		pos += int64(f.size)
		if pos > r.end-mpegHeadLen {
			return i + 1, true
		}
		f, ok = r.parse(pos, pos)
	}
	return 0, false
}

// place finds a frame at or soon after pos, with a short read.
func (r *frameReader) place(first syncFrame, pos int64) (syncFrame, int64, bool) {
	r.chunk = media.HeadLen
	return r.sync(pos, pos+media.HeadLen, first.kind)
}

// frameGrid is where the frames of a stream of one bit rate are.
type frameGrid struct {
	kind    uint32
	bitrate int
	size    int64 // bytes of a frame, times the rate
	rate    int64
	slot    int64 // the unit of padding
}

// number returns the number of the frame f at pos, if it belongs to the stream and lies where it
// should: within two slots, for encoders round differently.
func (g frameGrid) number(r *frameReader, f syncFrame, pos, start int64) (i int64, ok bool) {
	if f.kind != g.kind || mpegBitrate(r.from(pos, pos, adtsHeadLen), f) != g.bitrate {
		return 0, false
	}
	off := (pos - start) * g.rate
	i = (off + g.size/2) / g.size
	miss := off - i*g.size
	return i, max(miss, -miss) <= 2*g.slot*g.rate
}

// estimate measures the frames at places spread over the audio, and takes the rest to be like them.
func (r *frameReader) estimate(first syncFrame, start int64) (samples int64, dense bool) {
	var sum, bytes, span int64
	r.work = maxWork / 4
	step := (r.end - start) / samplings
	for k := range int64(samplings) {
		pos := start + k*step
		r.chunk = sampledLen
		t := r.walk(first, pos, min(pos+sampledLen, r.end))
		from, to := pos, min(pos+sampledLen, r.end)
		if t.first >= 0 && t.first-from < maxSyncFrame && to-t.last < maxSyncFrame {
			// a piece of a frame at either end
			from, to = t.first, t.last
		}
		sum, bytes, span = sum+t.samples, bytes+t.bytes, span+to-from
	}
	return int64(float64(sum) / float64(max(1, span)) * float64(r.end-start)), bytes >= span/2
}
