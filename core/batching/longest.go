package batching

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// Longest is what it costs to keep the clips over a length.
type Longest struct {
	OverS       float64 `json:"over_s"`
	Clips       int     `json:"clips"`
	AudioShare  float64 `json:"audio_share"`  // of all audio, 0 to 1, as all shares
	MicroBatch  int     `json:"micro_batch"`  // what fits with them; 0: the longest not even alone
	WithoutThem int     `json:"without_them"` // what fits the longest of the others
	// of the padded seconds in random order, at one micro-batch size for all
	PaddedShare float64 `json:"padded_share"`
	TimeShare   float64 `json:"time_share"` // of the predicted time, likewise
	// of the predicted time where micro-batches are sized by memory: that of these clips alone
	SplitTimeShare float64 `json:"split_time_share"`
	Text           string  `json:"text"`
}

// fewClips is the share of all clips up to which dropping is considered when no limits are given.
const fewClips = 0.01

// CostOfLongest returns, for every limit in seconds, what the clips over it cost. Without limits it
// considers those at which a larger micro-batch becomes possible without the longest hundredth of
// the clips, or without part of it; the fewest clips first.
func CostOfLongest(seconds []float64, r Options, limits []float64) ([]Longest, error) {
	r.Mode = Stratified
	if err := r.Check(); err != nil {
		return nil, err
	}
	c, err := sortClips(seconds, nil)
	if err != nil {
		return nil, err
	}
	if err := r.Memory.Check(); err != nil {
		return nil, err
	}
	c.largest = r.Memory.largestOf(c.sorted)
	if limits == nil {
		limits = c.limits()
	}
	rows := []Longest{}
	for _, limit := range slices.Backward(slices.Sorted(slices.Values(limits))) {
		n := sort.Search(len(c.sorted), func(i int) bool { return c.sorted[i] > limit })
		if n == 0 || n == len(c.sorted) {
			continue
		}
		rows = append(rows, c.longest(n, limit, r))
	}
	return rows, nil
}

// limits are the lengths where fewer clips, of the longest few, allow more in a micro-batch.
func (c *sortedClips) limits() (all []float64) {
	n := len(c.sorted)
	for i := n - 1; i > 0 && float64(n-i) <= max(1, fewClips*float64(n)); i-- {
		if c.largest[i-1] > c.largest[i] {
			all = append(all, c.sorted[i-1])
		}
	}
	return all
}

func (c *sortedClips) longest(within int, over float64, r Options) Longest {
	n := len(c.sorted)
	out := Longest{OverS: over, Clips: n - within, MicroBatch: int(c.largest[n-1]),
		WithoutThem: int(c.largest[within-1])}
	if all := sum(c.sorted); all > 0 {
		out.AudioShare = sum(c.sorted[within:]) / all
	}
	if out.MicroBatch > 0 {
		padded, time := c.inOneSize(n, r)
		without, timeWithout := c.inOneSize(within, r)
		out.PaddedShare, out.TimeShare = saved(without, padded), saved(timeWithout, time)
		out.SplitTimeShare = saved(c.cutInOrder(within, r), c.cutInOrder(n, r))
	}
	out.Text = out.words(r.RowKind)
	return out
}

func saved(without, with float64) float64 {
	if with == 0 {
		return 0
	}
	return max(0, 1-without/with)
}

// inOneSize is the padded seconds and the cost of the first clips in random order with the one size
// that their longest allows.
func (c *sortedClips) inOneSize(n int, r Options) (padded, cost float64) {
	size := min(r.perRank(), int(c.largest[n-1]))
	padded = Expected(c.sorted[:n], size)
	microBatches := math.Ceil(float64(n) / float64(size))
	return padded, microBatches * r.Of(padded/microBatches)
}

// cutInOrder is the least that the first clips cost in micro-batches of neighbours in length, none
// larger than a share.
func (c *sortedClips) cutInOrder(n int, r Options) float64 {
	largest, order := make([]int32, n), positions(n)
	slices.Reverse(order)
	for i := range n {
		largest[i] = min(int32(r.perRank()), c.largest[i])
	}
	s := splitter{sorted: c.sorted, largest: largest, price: r.Cost}
	return s.cost(order, s.optimal(order))
}

func (l Longest) words(rows units.RowKind) string {
	which, verb := rows.Count(l.Clips)+" over "+rows.Length(l.OverS), "force"
	if l.Clips == 1 {
		verb = "forces"
	}
	if l.MicroBatch == 0 {
		return fmt.Sprintf("%s: the longest does not fit even alone; without them a micro-batch "+
			"of %d fits", which, l.WithoutThem)
	}
	if l.MicroBatch == l.WithoutThem {
		return fmt.Sprintf("%s: a micro-batch of %d fits with them and without", which,
			l.MicroBatch)
	}
	return fmt.Sprintf("%s %s a micro-batch of %d; without them %d; with one size for all they "+
		"cost %.0f%% of the time, with sizes by memory %.1f%%",
		which, verb, l.MicroBatch, l.WithoutThem, 100*l.TimeShare, 100*l.SplitTimeShare)
}
