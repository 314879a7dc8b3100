package analytic

import (
	"fmt"

	"github.com/goccy/go-json"
)

// layerDrop is the probability that a training step skips a layer. Time counts the mean of the steps, memory those that skip none,
// and evaluations skip none.
type layerDrop float64

// UnmarshalJSON refuses what is no probability, and 1, with which nothing would train.
func (d *layerDrop) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*float64)(d)); err != nil {
		return err
	}
	if !(*d >= 0 && *d < 1) {
		return fmt.Errorf("a layerdrop of %v; it must be at least 0 and less than 1", *d)
	}
	return nil
}

// block is a stretch of nodes that stands for several equal ones in a row.
type block struct {
	from, to int
	repeats  int64
	kept     float64 // how often each of them runs, on average
}

// repeat plays n equal layers. The first and the last are played; one between them stands for all the others, since each
// adds the same, in both directions: where only some layers are checkpointed, as many together as it takes for the pattern to
// come again. A simulated allocator gets to see them all.
func (t *tracker) repeat(n int, dropped layerDrop, layer func(i int)) {
	kept := 1 - float64(dropped)
	if t.evaluating {
		kept = 1
	}
	period := 1
	if t.checkpointing {
		period = max(1, t.everyN)
	}
	groups := (n - 2*period) / period // in the middle
	if t.device != nil || groups < 2 {
		groups = 0
	}
	for i := 0; i < n; {
		b := block{from: len(t.nodes), repeats: 1, kept: kept}
		size := 1
		if groups > 0 && i == period {
			b.repeats, size = int64(groups), period
		}
		t.playedAs(b, func() {
			for k := range size {
				layer(i + k)
			}
		})
		b.to = len(t.nodes)
		t.blocks = append(t.blocks, b)
		i += size * int(b.repeats)
	}
}

// playedAs plays what a block stands for.
func (t *tracker) playedAs(b block, play func()) {
	t.kept = b.kept
	t.repeated(b.repeats, play)
	t.kept = 1
}

// repeated plays a stretch once and counts it as often as asked. Its highest moment is that of the first time or of the
// last, since what each time adds lies beneath the next.
func (t *tracker) repeated(times int64, play func()) {
	if times == 1 {
		play()
		return
	}
	outer, inner := t.highest, &highWater{}
	outer.copyPending(&t.live)
	var added account
	added.add(&t.live, -1)
	t.highest, t.repeats, t.workRepeats = inner, times, times
	play()
	t.repeats, t.workRepeats = 1, 1
	inner.copyPending(&t.live)
	added.add(&t.live, 1)
	t.live.add(&added, times-1)
	for _, at := range t.sharedFreed {
		s := t.storages[at]
		t.count(s.row, s.part, (times-1)*s.bytes)
	}
	t.sharedFreed = t.sharedFreed[:0]
	outer.merge(inner, &added, 0)
	outer.merge(inner, &added, times-1)
	t.highest = outer
}
