package timing

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Lengths is a dataset's clips as far as time depends on them: how many, and quantiles of their durations.
type Lengths struct {
	Clips  int
	sorted []float64 // seconds, each standing for as many clips as any other
}

const quantiles = 512

// Data says what is trained on: a profile, or without one the figures of which one is assumed.
type Data struct {
	Profile *profile.Dataset `json:"profile"`
	Clips   int              `json:"clips"`  // 1..2^40
	MeanS   float64          `json:"mean_s"` // seconds, above 0 to 86400
	MaxS    float64          `json:"max_s"`  // seconds, MeanS..86400
}

const longestClip = 24 * 3600

// Lengths reads the durations. Errors: EmptyDataset without a clip, InvalidArgument for durations that cannot be.
func (d Data) Lengths() (Lengths, error) {
	if d.Profile != nil {
		return fromProfile(*d.Profile)
	}
	switch {
	case d.Clips < 1 || d.Clips > 1<<40:
		return Lengths{}, fault.New(fault.EmptyDataset, "give a dataset, or its hours and the mean length of a clip", "%d clips to train on", d.Clips)
	case !(d.MeanS > 0 && d.MeanS <= longestClip) || !(d.MaxS >= d.MeanS && d.MaxS <= longestClip):
		return Lengths{}, fault.New(fault.InvalidArgument, "give seconds above 0, with the longest clip at least as long as the mean one",
			"clips of %v s on average and at most %v s", d.MeanS, d.MaxS)
	}
	return assumed(d.Clips, d.MeanS, d.MaxS), nil
}

// One is a dataset of one clip.
func One(seconds float64) Lengths { return Lengths{1, []float64{seconds}} }

// fromProfile spreads the clips of each bin of the histogram evenly over it.
func fromProfile(p profile.Dataset) (Lengths, error) {
	total := 0
	for _, n := range p.Histogram.Counts {
		total += max(0, n)
	}
	if p.SampleCount < 1 || total < 1 || len(p.Histogram.EdgesS) != len(p.Histogram.Counts)+1 {
		return Lengths{}, fault.New(fault.EmptyDataset, "check the paths, or bad_files of the scan", "the dataset has no usable clips")
	}
	if !(p.MinS >= 0 && p.MaxS >= p.MinS && p.MaxS > 0 && p.MaxS <= longestClip) || !slices.IsSorted(p.Histogram.EdgesS) {
		return Lengths{}, fault.New(fault.InvalidArgument, "measure the dataset again", "clips of %v to %v s", p.MinS, p.MaxS)
	}
	l := Lengths{Clips: p.SampleCount, sorted: make([]float64, quantiles)}
	bin, before := 0, 0.0
	for i := range l.sorted {
		rank := (float64(i) + 0.5) / quantiles * float64(total)
		for rank > before+float64(p.Histogram.Counts[bin]) {
			before += float64(p.Histogram.Counts[bin])
			bin++
		}
		low, high := p.Histogram.EdgesS[bin], p.Histogram.EdgesS[bin+1]
		s := low + (high-low)*(rank-before)/float64(p.Histogram.Counts[bin])
		l.sorted[i] = min(max(s, p.MinS), p.MaxS)
	}
	return l.withLongest(p.MaxS), nil
}

// spread is the standard deviation of the logarithm of a clip's length that is assumed when only mean and maximum are known.
const spread = 0.5

// assumed is a log-normal distribution of that mean, cut at the longest clip.
func assumed(clips int, mean, longest float64) Lengths {
	l := Lengths{Clips: clips, sorted: make([]float64, quantiles)}
	scale := mean
	for range 60 { // the cut lowers the mean, so the scale goes up until it is met
		sum := 0.0
		for i := range l.sorted {
			z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/quantiles-1)
			l.sorted[i] = min(longest, scale*math.Exp(spread*z-spread*spread/2))
			sum += l.sorted[i]
		}
		scale *= mean * quantiles / sum
	}
	return l.withLongest(longest)
}

// withLongest puts the longest clip at the end.
func (l Lengths) withLongest(longest float64) Lengths {
	l.sorted[len(l.sorted)-1] = longest
	return l
}

// Longest is the longest clip in seconds.
func (l Lengths) Longest() float64 { return l.sorted[len(l.sorted)-1] }

// Hours is how long all clips last.
func (l Lengths) Hours() float64 { return l.mean() * float64(l.Clips) / 3600 }

func (l Lengths) mean() (sum float64) {
	for _, s := range l.sorted {
		sum += s
	}
	return sum / float64(len(l.sorted))
}

// Trimmed is the dataset with every clip over so many seconds cut to that length.
func (l Lengths) Trimmed(longest float64) Lengths {
	c := Lengths{l.Clips, slices.Clone(l.sorted)}
	for i, s := range c.sorted {
		c.sorted[i] = min(s, longest)
	}
	return c
}

// points is how many lengths stand for those of all batches.
const points = 8

// groups is how many batches the Trainer sorts together with group_by_length.
const groups = 50

// Batches gives lengths that stand for those of all batches of b clips, one as often as another: of clips in random order
// ("random"), where the longest of b counts, or grouped by length as the Trainer does it ("grouped").
func (l Lengths) Batches(order string, b int) []float64 {
	out := make([]float64, points)
	for i := range out {
		share := (float64(i) + 0.5) / points
		if order == "grouped" {
			share = min(share+0.5/groups, 1-0.5/float64(groups*b)) // the longest of a batch among fifty
		} else {
			share = math.Pow(share, 1/float64(b))
		}
		out[i] = between(l.sorted, share*float64(len(l.sorted))-0.5)
	}
	return out
}

// Padded stretches every clip towards the longest so that all of them last so many seconds together, as batches made in some
// other way do. Fewer seconds than the clips last are cut evenly.
func (l Lengths) Padded(seconds float64) []float64 {
	wanted, mean := seconds/float64(l.Clips), l.mean()
	stretch := min(1, max(0, (wanted-mean)/max(l.Longest()-mean, math.SmallestNonzeroFloat64)))
	out := make([]float64, points)
	for i := range out {
		s := between(l.sorted, (float64(i)+0.5)/points*float64(len(l.sorted))-0.5)
		out[i] = (s + stretch*(l.Longest()-s)) * min(1, wanted/mean)
	}
	return out
}

// Quantiles are lengths in rising order, each standing for as many clips as any other.
func (l Lengths) Quantiles() []float64 { return slices.Clone(l.sorted) }
