package batching

import (
	"math"
	"slices"
	"sort"
)

// of the histogram, about equally full, beside the lengths at which another micro-batch fits
const bins = 512

// Bucket is a range of durations, and the micro-batch that fits its longest clip.
type Bucket struct {
	UpToS      float64 `json:"up_to_s"` // seconds of its longest clip
	Clips      int     `json:"clips"`
	MicroBatch *int    `json:"micro_batch"` // null where memory is not known
	AudioS     float64 `json:"audio_s"`
}

// cells are where the histogram's bins begin and end, as positions: clips of one duration are never
// separated.
func (c *sortedClips) cells() []int {
	n := len(c.sorted)
	ends := []int{0, n}
	past := func(seconds float64) int {
		return sort.Search(n, func(i int) bool { return c.sorted[i] > seconds })
	}
	for i := 1; i < bins; i++ {
		if pos := i * n / bins; pos > 0 {
			ends = append(ends, past(c.sorted[pos-1]))
		}
	}
	for _, row := range c.memory {
		ends = append(ends, past(row.Seconds))
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// cost of a clip in a bucket whose longest clip is at a position: its padding to that one, and its
// part in what the micro-batches that a process's share of a step needs cost besides.
func (c *sortedClips) cost(last, share int, of Cost) float64 {
	if c.largest == nil {
		return c.sorted[last]
	}
	size := min(share, int(c.largest[last]))
	perMicroBatch := float64(share) / float64((share+size-1)/size)
	return of.Of(perMicroBatch*c.sorted[last]) / perMicroBatch
}

// buckets divides the clips into at most k ranges of the lowest total cost, by dynamic programming
// over the histogram, and returns the ends as positions. A bucket has at least so many clips.
func (c *sortedClips) buckets(k, share int, cost Cost, minClips int) []int {
	ends := c.cells()
	h := len(ends) - 1
	unknown := slices.Repeat([]float64{math.Inf(1)}, h+1)
	before, from := slices.Clone(unknown), make([][]int32, 0, k)
	before[0] = 0 // the least cost of the first j bins
	best, used := math.Inf(1), 0
	for round := 1; round <= min(k, h); round++ {
		costs, link := slices.Clone(unknown), make([]int32, h+1)
		for j := 1; j <= h; j++ {
			perClip := c.cost(ends[j]-1, share, cost)
			for i := range j {
				count := ends[j] - ends[i]
				if count < minClips && !(i == 0 && j == h) {
					break // and the buckets that begin later are smaller still
				}
				if total := before[i] + float64(count)*perClip; total < costs[j] {
					costs[j], link[j] = total, int32(i)
				}
			}
		}
		from, before = append(from, link), costs
		if costs[h] < best {
			best, used = costs[h], round
		}
	}
	boundaries := make([]int, used)
	for j := h; used > 0; used-- {
		boundaries[used-1] = ends[j]
		j = int(from[used-1][j])
	}
	return boundaries
}

// describe lists what is in the buckets that end at these positions.
func (c *sortedClips) describe(boundaries []int) []Bucket {
	all, from := make([]Bucket, len(boundaries)), 0
	for i, to := range boundaries {
		b := Bucket{UpToS: c.sorted[to-1], Clips: to - from, AudioS: sum(c.sorted[from:to])}
		if c.largest != nil {
			size := int(c.largest[to-1])
			b.MicroBatch = &size
		}
		all[i], from = b, to
	}
	return all
}
