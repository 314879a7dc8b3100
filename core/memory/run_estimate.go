package memory

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

// RunEstimate is what a training over given samples needs, over several orders of them. Sizes are
// bytes.
type RunEstimate struct {
	PeakAllocated Spread  `json:"peak_allocated"`
	PeakReserved  Spread  `json:"peak_reserved"`
	PeakDevice    *Spread `json:"peak_device"` // with the driver's context; null without a GPU
	Retries       Spread  `json:"retries"`
	// share of the seeds that ran out of memory, 0 to 1
	OutOfMemory float64 `json:"out_of_memory"`
	// of steps that all have the longest input and transcript, without a limit
	Largest Peaks    `json:"largest_batch_only"`
	Seeds   []OfSeed `json:"seeds"`
}

// Spread is a figure over the orders that were tried.
type Spread struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"` // between the two nearest where none is at 99 %
	Worst  float64 `json:"worst"`
}

// Peaks are the highest figures of a run, in bytes.
type Peaks struct {
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
}

// OfSeed is one order of the samples, or the run over micro-batches that are known. Sizes are bytes.
// Steps that ran out of memory were given up.
type OfSeed struct {
	Seed uint64 `json:"seed"`
	Peaks
	Retries      uint64 `json:"retries"`
	Failed       int    `json:"failed_steps"`      // those that ran out of memory
	FirstFailed  *int   `json:"first_failed_step"` // counted from 0; null without one
	MicroBatches int    `json:"micro_batches"`     // those played to their ends
	// the most allocated in a micro-batch, mean of them; null without one
	MeanPeak *float64 `json:"mean_peak"`
	// likewise, weighted by their padded seconds and overhead
	MeanByTime *float64 `json:"mean_peak_by_time"`
}

// totals adds up what a seed plays.
type totals struct {
	OfSeed
	overhead              float64
	sum, weighted, weight float64
}

// add counts a segment, of which the peaks are its own.
func (t *totals) add(s replay.Segment, peaks Peaks, complete bool) {
	t.PeakAllocated, t.PeakReserved =
		max(t.PeakAllocated, peaks.PeakAllocated), max(t.PeakReserved, peaks.PeakReserved)
	if s.Position.Role == template.Load || s.Position.Role == template.Step || !complete {
		return
	}
	peak, cost := float64(peaks.PeakAllocated), float64(s.Shape.Batch)*float64(s.Shape.Length)+
		t.overhead
	t.MicroBatches++
	t.sum, t.weighted, t.weight = t.sum+peak, t.weighted+cost*peak, t.weight+cost
}

// failed counts a step that ran out of memory.
func (t *totals) failed(step int) {
	if t.Failed++; t.Failed == 1 {
		t.FirstFailed = &step
	}
}

func (t *totals) done(p *replay.Player) OfSeed {
	t.Retries = p.Allocator.Stats().Retries
	if t.MicroBatches > 0 {
		mean, byTime := t.sum/float64(t.MicroBatches), t.weighted/t.weight
		t.MeanPeak, t.MeanByTime = &mean, &byTime
	}
	return t.OfSeed
}

func runEstimate(seeds []OfSeed, largest Peaks, device *uint64) RunEstimate {
	over := func(figure func(OfSeed) uint64) Spread {
		values := make([]float64, len(seeds))
		for i, s := range seeds {
			values[i] = float64(figure(s))
		}
		return spreadOf(values)
	}
	e := RunEstimate{
		PeakAllocated: over(func(s OfSeed) uint64 { return s.PeakAllocated }),
		PeakReserved:  over(func(s OfSeed) uint64 { return s.PeakReserved }),
		Retries:       over(func(s OfSeed) uint64 { return s.Retries }),
		Largest:       largest, Seeds: seeds,
	}
	failed := 0
	for _, s := range seeds {
		if s.Failed > 0 {
			failed++
		}
	}
	e.OutOfMemory = float64(failed) / float64(len(seeds))
	if device != nil {
		d := float64(*device)
		e.PeakDevice = &Spread{e.PeakReserved.Median + d, e.PeakReserved.P99 + d,
			e.PeakReserved.Worst + d}
	}
	return e
}

// spreadOf sorts the values.
func spreadOf(values []float64) Spread {
	slices.Sort(values)
	quantile := func(share float64) float64 {
		place := share * float64(len(values)-1)
		below := int(place)
		above := min(below+1, len(values)-1)
		return values[below] + (place-float64(below))*(values[above]-values[below])
	}
	return Spread{quantile(0.5), quantile(0.99), values[len(values)-1]}
}
