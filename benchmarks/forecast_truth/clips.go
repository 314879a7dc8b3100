package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// batch is what a step takes.
type batch struct {
	clips   int
	longest float64 // seconds
	audio   float64
}

func (b batch) padded() float64 { return float64(b.clips) * b.longest }

// clips is a dataset with the way in which its batches are made.
type clips struct {
	durations []float64
	order     string
	size      int
	worst     float64 // most padded seconds that a batch can have
}

var orders = []string{"random", "random", "grouped", "bucketed", "packed"}

// newClips draws durations: log-normal, with a heavy tail in a quarter of the datasets, cut at a longest one.
func newClips(rng *rand.Rand, order string) *clips {
	c := &clips{size: 1 << rng.IntN(7)}
	mid, spread, cut := 3+9*rng.Float64(), 0.3+0.5*rng.Float64(), 15+20*rng.Float64()
	heavy := rng.IntN(4) == 0
	if heavy {
		cut *= 2
	}
	for range c.size * (60 + rng.IntN(900)) {
		d := mid * math.Exp(spread*rng.NormFloat64())
		if heavy && rng.IntN(50) == 0 {
			d = mid * math.Pow(rng.Float64(), -0.7)
		}
		c.durations = append(c.durations, min(max(d, 0.3), cut))
	}
	c.reorder(order)
	return c
}

func (c *clips) reorder(order string) {
	c.order, c.worst = order, float64(c.size)*slices.Max(c.durations)
	if order == "packed" {
		sum := 0.0
		for _, d := range c.durations {
			sum += d
		}
		c.worst = max(1.3*float64(c.size)*sum/float64(len(c.durations)), slices.Max(c.durations))
	}
}

func (c *clips) epoch(rng *rand.Rand) []batch {
	d := slices.Clone(c.durations)
	rng.Shuffle(len(d), func(i, j int) { d[i], d[j] = d[j], d[i] })
	switch c.order {
	case "packed":
		return c.packed(d)
	case "grouped": // as transformers' LengthGroupedSampler: sorted within 50 batches, the longest first
		for i := 0; i < len(d); i += 50 * c.size {
			slices.SortFunc(d[i:min(i+50*c.size, len(d))], func(a, b float64) int { return int(math.Copysign(1, b-a)) })
		}
	case "bucketed", "sorted":
		slices.Sort(d)
	}
	var out []batch
	for i := 0; i+c.size <= len(d); i += c.size {
		out = append(out, made(d[i:i+c.size]))
	}
	if c.order == "bucketed" {
		rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}

// packed fills batches up to the most padded seconds.
func (c *clips) packed(d []float64) (out []batch) {
	from, longest := 0, 0.0
	for i := range d {
		if next := max(longest, d[i]); next*float64(i-from+1) > c.worst && i > from {
			out = append(out, made(d[from:i]))
			from, longest = i, d[i]
		} else {
			longest = next
		}
	}
	return out
}

func made(d []float64) batch {
	b := batch{clips: len(d), longest: slices.Max(d)}
	for _, s := range d {
		b.audio += s
	}
	return b
}
