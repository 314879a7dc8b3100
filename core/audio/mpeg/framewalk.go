package mpeg

import "bytes"

// sync looks for a frame from pos up to limit that others follow: fewer are enough for a frame of
// the given kind, and near the end of the audio still fewer.
func (r *frames) sync(pos, limit int64, kind uint32) (syncFrame, int64, bool) {
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

// walkResult is what a walk found.
type walkResult struct {
	samples     int64 // of whole frames, at the rate of the first
	cut         int64 // samples of a last frame that is cut short
	bytes       int64 // of frames
	first, last int64 // where the first frame starts and the last one ends
	done        bool  // the end was reached
}

// walk hops from frame to frame from pos up to to, and over what is no frame. like is a frame of
// the stream.
func (r *frames) walk(like syncFrame, pos, to int64) walkResult {
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
