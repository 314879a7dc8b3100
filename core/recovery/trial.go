package recovery

import "github.com/asrconfig/asrconfig-go/core/fault"

const (
	aimedTrials   = 8 // trials that follow predictions; after them the bracket is halved
	farthestTrial = 8 // times the largest measured size: one sample does not predict a hundred
	maxTrialSize  = 1 << 16
	maxTrials     = 1000
)

// TrialRequest is a search for the largest micro-batch from Low to High that fits, by trials.
type TrialRequest struct {
	Low   int `json:"low"`  // 1 to high
	High  int `json:"high"` // up to 65536
	Start int `json:"start"`
	// what the allocator may reserve in all; null where memory is not measured
	LimitBytes *uint64 `json:"limit_bytes"`
	Trials     []Trial `json:"trials"` // so far, up to 1000
}

// Trial is one that was made. Of one that fits on a GPU: the peak of reserved memory, and what all
// sizes need.
type Trial struct {
	Size      int     `json:"size"`
	Fits      bool    `json:"fits"`
	PeakBytes *uint64 `json:"peak_bytes"`
	BaseBytes *uint64 `json:"base_bytes"`
}

// NextTrial is the size to try. Where it is null, Fits is the largest that does.
type NextTrial struct {
	Size  *int `json:"size"`
	Fits  int  `json:"fits"`  // largest size known to fit, low - 1 without one
	Fails int  `json:"fails"` // smallest size known not to fit, high + 1 without one
}

// ChooseTrial chooses the next size. Start is a guess: it is tried first, and if it fits, the size
// above it. The memory of a size that fits, and the bytes that all sizes need, predict by a line
// the size that reaches the limit; so after a start that does not fit, half of it is tried for its
// measurement. Without measurements the trials move away from the start by steps of 1, a sixteenth,
// a quarter and so on. Errors: InvalidArgument.
func ChooseTrial(r TrialRequest) (NextTrial, error) {
	if r.Low < 1 || r.High < r.Low || r.High > maxTrialSize || len(r.Trials) > maxTrials {
		return NextTrial{}, fault.New(fault.InvalidArgument,
			"pass 1 <= low <= high <= 65536, and up to 1000 trials",
			"sizes %d to %d after %d trials", r.Low, r.High, len(r.Trials))
	}
	r.Start = min(max(r.Start, r.Low), r.High)
	b := bracket{TrialRequest: r, fits: r.Low - 1, fails: r.High + 1}
	for _, t := range r.Trials {
		b.note(t)
	}
	next := NextTrial{Fits: b.fits, Fails: b.fails}
	if b.fits+1 < b.fails {
		size := r.Start
		if len(r.Trials) > 0 {
			size = b.aim()
		}
		size = min(max(size, b.fits+1), b.fails-1)
		next.Size = &size
	}
	return next, nil
}

// bracket lies between the largest size known to fit and the smallest known not to.
type bracket struct {
	TrialRequest
	fits, fails     int
	rising, falling int // surprises in a row
	measured        []measurement
	base            float64
}

type measurement struct{ size, peak float64 }

func (b *bracket) note(t Trial) {
	if !t.Fits {
		b.fails, b.falling, b.rising = t.Size, b.falling+1, 0
		return
	}
	if predicted, ok := b.predicted(); !ok || t.Size > predicted {
		b.rising++
	} else {
		b.rising = 1
	}
	b.fits, b.falling = t.Size, 0
	if t.PeakBytes != nil && t.BaseBytes != nil {
		b.measured = append(b.measured, measurement{float64(t.Size), float64(*t.PeakBytes)})
		b.base = float64(*t.BaseBytes)
	}
}

func (b *bracket) aim() int {
	middle := (b.fits + b.fails) / 2
	closed := b.fits >= b.Low && b.fails <= b.High
	if closed && len(b.Trials) >= aimedTrials {
		return middle
	}
	if predicted, ok := b.predicted(); ok {
		width := min(b.fails, farthestTrial*b.fits) - b.fits
		lowest := b.fits + max(1, 1<<min(b.rising, 30)/4)
		return min(max(predicted, lowest), b.fails-stride(b.falling, width))
	}
	switch {
	case closed:
		return middle
	case b.fits >= b.Low:
		return b.fits + stride(b.rising, b.Start)
	case b.LimitBytes != nil:
		return b.fails / 2
	}
	return max(b.fails-stride(b.falling, b.Start), b.fails/2)
}

// predicted is the largest size by a line through the two largest measurements, or through one
// and the base.
func (b *bracket) predicted() (size int, ok bool) {
	if len(b.measured) == 0 || b.LimitBytes == nil {
		return 0, false
	}
	last, before := b.measured[len(b.measured)-1], measurement{0, b.base}
	if len(b.measured) > 1 {
		before = b.measured[len(b.measured)-2]
	}
	if 8*(last.size-before.size) < last.size { // too near for a slope
		before = measurement{0, b.base}
	}
	farthest, slope := farthestTrial*last.size, (last.peak-before.peak)/(last.size-before.size)
	if slope <= 0 {
		return int(farthest), true
	}
	return int(min(last.size+(float64(*b.LimitBytes)-last.peak)/slope, farthest)), true
}

// stride is the distance to the next trial after some with the same outcome: 1, width/16, width/4
// and so on.
func stride(repeated, width int) int {
	if repeated < 2 {
		return 1
	}
	shift := min(repeated-1, 20)
	return max(1<<shift, width<<(2*shift)/64)
}
