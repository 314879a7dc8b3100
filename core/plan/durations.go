package plan

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// durations are the lengths of a dataset's clips as a model takes them.
type durations struct {
	sorted []float64 // seconds in rising order, of all clips or of a sample that stands for them
	count  int       // clips of the dataset that are trained on, or pieces of them
	rows   units.RowKind
	fixed  float64 // seconds to which the model pads or cuts every clip; 0: clips keep their length

	leftOut      int     // clips over the limit on length
	leftOutHours float64 //
}

// readDurations takes every clip's duration where they are known, and the profile's histogram where
// they are not.
func readDurations(in Inputs, fixed float64) (a durations, err error) {
	a = durations{sorted: slices.Clone(in.Durations), count: in.Dataset.SampleCount,
		rows: in.Dataset.RowKind, fixed: fixed}
	for i, s := range a.sorted {
		if !(s >= 0 && s <= maxClipS) {
			return a, fault.New(fault.InvalidArgument, "leave out clips that cannot be read",
				"clip %d lasts %v s", i, s)
		}
	}
	if len(a.sorted) == 0 {
		lengths, err := timing.Data{Profile: &in.Dataset}.Lengths()
		if err != nil {
			return a, err
		}
		a.sorted = lengths.Quantiles()
	}
	slices.Sort(a.sorted)
	if in.Options.Streamed {
		bound := streamBound(in, fixed)
		if a, err = a.upTo(bound); err == nil && a.sorted[len(a.sorted)-1] < bound {
			a.sorted = append(a.sorted, bound) // which none was measured of
		}
		return a, err
	}
	if in.Options.MaxLengthS != nil {
		if a, err = a.upTo(*in.Options.MaxLengthS); err != nil {
			return a, err
		}
	}
	if fixed > 0 && !classifies(in.Model) {
		a = a.split()
	}
	return a, nil
}

// classifies reports whether the model has a class for each clip: it uses the beginning of clips
// that are too long, while other models need them split with their texts.
func classifies(m profile.Model) bool { return strings.HasSuffix(m.ClassName, "Classification") }

// split replaces clips that are longer than the model takes by as few pieces as possible.
func (a durations) split() durations {
	pieces := make([]float64, 0, len(a.sorted))
	for _, s := range a.sorted {
		n := max(1, math.Ceil(s/a.fixed))
		pieces = append(pieces, slices.Repeat([]float64{s / n}, int(n))...)
	}
	a.count = int(math.Round(float64(a.count) * float64(len(pieces)) / float64(len(a.sorted))))
	slices.Sort(pieces)
	a.sorted = pieces
	return a
}

// streamBound is the longest clip of a stream that is trained on: the user's limit, or the longest
// measured clip rounded up to a tenth of a second, and at most what the model takes.
func streamBound(in Inputs, fixed float64) float64 {
	bound := profile.Or(in.Options.MaxLengthS, math.Ceil(10*in.Dataset.MaxS)/10)
	if fixed > 0 {
		return min(bound, fixed)
	}
	return bound
}

// upTo leaves out clips over a length. Errors: EmptyDataset when none is left.
func (a durations) upTo(seconds float64) (durations, error) {
	n := sort.Search(len(a.sorted), func(i int) bool { return a.sorted[i] > seconds })
	if n == 0 {
		return a, fault.New(fault.EmptyDataset, fmt.Sprintf("allow longer %s", a.rows.Nouns()),
			"no %s lasts at most %s; the shortest lasts %s",
			a.rows.Noun(), a.rows.Length(seconds), a.rows.Length(a.sorted[0]))
	}
	perEntry := float64(a.count) / float64(len(a.sorted)) // clips that an entry stands for
	for _, s := range a.sorted[n:] {
		a.leftOutHours += perEntry * s / 3600
	}
	a.leftOut += int(math.Round(perEntry * float64(len(a.sorted)-n)))
	a.count = max(1, a.count-int(math.Round(perEntry*float64(len(a.sorted)-n))))
	a.sorted = a.sorted[:n]
	return a, nil
}

// longest is the seconds of the longest clip as the model takes it.
func (a durations) longest() float64 { return a.modelled(a.sorted[len(a.sorted)-1]) }

// oneLength reports whether every batch is of one length.
func (a durations) oneLength() bool { return a.modelled(a.sorted[0]) == a.longest() }

// modelled is the length of a clip in the model, in seconds.
func (a durations) modelled(seconds float64) float64 {
	if a.fixed > 0 {
		return a.fixed
	}
	return max(seconds, estimate.Shortest)
}

func (a durations) mean() (sum float64) {
	if a.fixed > 0 {
		return a.fixed
	}
	for _, s := range a.sorted {
		sum += a.modelled(s)
	}
	return sum / float64(len(a.sorted))
}

// seconds is how long all clips last, without padding.
func (a durations) seconds() (sum float64) {
	for _, s := range a.sorted {
		sum += s
	}
	return sum * float64(a.count) / float64(len(a.sorted))
}

// simulated is how many clips stand for the dataset in the search: enough for shares of a
// thousandth.
const simulated = 1 << 15

// sample returns clips for a simulation of whole steps: all of them, or evenly spaced ones with the
// longest among them; at least one for each device.
func (a durations) sample(step, devices int) []float64 {
	n := min(len(a.sorted), simulated)
	if n > step {
		n = n / step * step
	}
	n = max(n, devices)
	out := make([]float64, n)
	for i := range out {
		pos := len(a.sorted) - 1 - int(int64(n-1-i)*int64(len(a.sorted))/int64(n))
		out[i] = a.modelled(a.sorted[pos])
	}
	return out
}

// fits returns how many of the shortest clips a table has memory for.
func (a durations) fits(m batching.Limits) int {
	return sort.Search(len(a.sorted), func(i int) bool {
		return m.Largest(a.modelled(a.sorted[i])) == 0
	})
}
