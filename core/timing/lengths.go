package timing

import (
	"cmp"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Lengths is a dataset's clips as far as time depends on them: how many, and quantiles of their
// durations.
type Lengths struct {
	Clips  int
	sorted []float64 // quantiles in seconds, rising, each of which stands for equally many clips
}

const (
	quantiles = 512
	// Assumed lengths have more quantiles where the longest is many times the mean, so that the
	// longest quantile holds at most one part in longestParts of all audio.
	mostQuantiles = 1 << 15
	longestParts  = 50
)

// Data is what is trained on: a dataset profile, or figures from which clips are assumed.
type Data struct {
	Profile *profile.Dataset `json:"profile"`
	Clips   int              `json:"clips"`    // 1..2^40
	MeanS   float64          `json:"mean_s"`   // seconds, above 0 to 86400
	MaxS    float64          `json:"max_s"`    // seconds, MeanS..86400
	RowKind units.RowKind    `json:"row_kind"` // of assumed rows; "": clips
}

const longestClipS = 24 * 3600

// Lengths returns the lengths of the profile's clips, or of assumed ones. Errors: EmptyDataset
// without a clip, InvalidArgument for impossible durations.
func (d Data) Lengths() (Lengths, error) {
	if d.Profile != nil {
		return fromProfile(*d.Profile)
	}
	switch {
	case d.Clips < 1 || d.Clips > 1<<40:
		return Lengths{}, fault.New(fault.EmptyDataset,
			"pass a dataset, or how much there is of what mean length", "%d %s to train on",
			d.Clips, d.RowKind.Nouns())
	case !(d.MeanS > 0 && d.MeanS <= d.MaxS && d.MaxS <= longestClipS):
		return Lengths{}, fault.New(fault.InvalidArgument,
			"pass lengths above 0, the longest at least as long as the mean one",
			"%s of %s on average and at most %s", d.RowKind.Nouns(), d.RowKind.Length(d.MeanS),
			d.RowKind.Length(d.MaxS))
	}
	return assumed(d.Clips, d.MeanS, d.MaxS), nil
}

// Dataset returns the profile; or one with what is known of assumed clips, and the quantiles of
// their durations in seconds. Errors: those of Lengths.
func (d Data) Dataset() (profile.Dataset, []float64, error) {
	l, err := d.Lengths()
	if err != nil || d.Profile != nil {
		return profile.Or(d.Profile, profile.Dataset{}), nil, err
	}
	mean := l.mean()
	seconds := mean * float64(l.Clips)
	return profile.Dataset{SampleCount: l.Clips, MeasuredCount: l.Clips, MeanS: mean,
		MinS: l.sorted[0], MaxS: l.longest(), TotalHours: seconds / 3600,
		RowKind:      cmp.Or(d.RowKind, units.Clips),
		SizeBytes:    int64(min(d.RowKind.Bytes(seconds)/2, mostBytes)),
		DecodedBytes: int64(min(d.RowKind.Bytes(seconds), mostBytes)), Source: "assumed " +
			d.RowKind.Lengths()}, l.Quantiles(), nil
}

const mostBytes = 1 << 62 // bounds sizes that are computed as floats, so that they fit int64

// fromProfile takes the quantiles from the histogram, with the clips of each bin spread evenly over
// it.
func fromProfile(p profile.Dataset) (Lengths, error) {
	total := 0
	for _, n := range p.Histogram.Counts {
		total += max(0, n)
	}
	if p.SampleCount < 1 || total < 1 || len(p.Histogram.EdgesS) != len(p.Histogram.Counts)+1 {
		return Lengths{}, fault.New(fault.EmptyDataset, "check the paths, or bad_files of the scan",
			"the dataset has no usable %s", p.RowKind.Nouns())
	}
	if !(p.MinS >= 0 && p.MaxS >= p.MinS && p.MaxS > 0 && p.MaxS <= longestClipS) ||
		!slices.IsSorted(p.Histogram.EdgesS) {
		return Lengths{}, fault.New(fault.InvalidArgument, "measure the dataset again",
			"%s of %v to %v s", p.RowKind.Nouns(), p.MinS, p.MaxS)
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

// spread is the standard deviation of the logarithm of a clip's length. It is assumed where only
// mean and maximum are known.
const spread = 0.5

// assumed returns a log-normal distribution of that mean, cut at the longest clip. That clip is its
// last quantile, which stands for so few clips that it hardly counts.
func assumed(clips int, mean, longest float64) Lengths {
	count := int(min(mostQuantiles, max(quantiles, longestParts*longest/mean)))
	l := Lengths{Clips: clips, sorted: make([]float64, count)}
	if mean == longest { // the scale below would rise for ever
		for i := range l.sorted {
			l.sorted[i] = longest
		}
		return l
	}
	scale := mean
	for range 60 { // rounds: the cut lowers the mean, so the scale is raised until it is met
		for i := range l.sorted {
			z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(count)-1)
			l.sorted[i] = min(longest, scale*math.Exp(spread*z-spread*spread/2))
		}
		scale *= mean / l.withLongest(longest).mean()
	}
	return l
}

// withLongest replaces the last quantile by the longest clip.
func (l Lengths) withLongest(longest float64) Lengths {
	l.sorted[len(l.sorted)-1] = longest
	return l
}

func (l Lengths) longest() float64 { return l.sorted[len(l.sorted)-1] }

func (l Lengths) mean() (sum float64) {
	for _, s := range l.sorted {
		sum += s
	}
	return sum / float64(len(l.sorted))
}

// Quantiles are lengths in rising order, each representing the same number of clips.
func (l Lengths) Quantiles() []float64 { return slices.Clone(l.sorted) }
