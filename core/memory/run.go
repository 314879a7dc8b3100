package memory

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/parallel"
)

// run is what a checked request asks for.
type run struct {
	seeds   int
	largest []trace.Shape // the window that takes most, to play alone
	micros  int           // micro-batches of one seed
	windows func(seed uint64) iter.Seq2[int, []trace.Shape]
}

// Run plays a training through an allocator of its own, or in several orders of its samples one in
// each: what is reserved depends on the order in which lengths come. A step that runs out of memory
// is given up, and the run continues with the next one, from an emptied cache; one that does so in
// its first step ends there.
func (m *Model) Run(r RunRequest) (RunEstimate, error) {
	settings, err := settingsOf(r.Settings, r.LimitBytes, r.DeviceBytes)
	if err != nil {
		return RunEstimate{}, err
	}
	wanted, err := m.checkedRun(r)
	if err != nil {
		return RunEstimate{}, err
	}
	largest, err := m.playLargest(wanted, r)
	if err != nil {
		return RunEstimate{}, err
	}
	seeds := make([]OfSeed, wanted.seeds)
	err = parallel.Do(wanted.seeds, func(i int) (err error) {
		seeds[i], err = m.runSeed(replay.New(m.templates.Variables, settings, r.GPU), wanted,
			uint64(i), r.Overhead)
		return err
	})
	if err != nil {
		return RunEstimate{}, err
	}
	return runEstimate(seeds, largest, r.DeviceBytes), nil
}

// playLargest replays a few steps of the largest possible batch, and limits the length of the run.
func (m *Model) playLargest(wanted *run, r RunRequest) (Peaks, error) {
	plan := m.load()
	for number := range defaultSteps {
		window, err := m.window(number, wanted.largest)
		if err != nil {
			return Peaks{}, err
		}
		plan = append(plan, window...)
	}
	perMicroBatch := float64(replay.Events(plan)) / float64(defaultSteps*len(wanted.largest))
	if perMicroBatch*float64(wanted.micros)*float64(wanted.seeds) > maxRunEvents {
		return Peaks{}, fault.New(fault.InvalidArgument, "ask for fewer steps or seeds",
			"more than %d events to simulate", maxRunEvents)
	}
	settings, err := settingsOf(r.Settings, nil, nil)
	if err != nil {
		return Peaks{}, err
	}
	p := replay.New(m.templates.Variables, settings, r.GPU)
	_, err = p.PlayAll(plan)
	return peaksOf(p), err
}

func peaksOf(p *replay.Player) Peaks {
	s := p.Allocator.Stats()
	return Peaks{s.PeakAllocated, s.PeakReserved}
}

// runSeed plays the windows of one seed through a fresh player.
func (m *Model) runSeed(p *replay.Player, wanted *run, seed uint64,
	overhead float64) (OfSeed, error) {
	t := totals{OfSeed: OfSeed{Seed: seed}, overhead: overhead}
	for number, shapes := range wanted.windows(seed) {
		plan, err := m.window(number, shapes)
		if number == 0 {
			plan = append(m.load(), plan...)
		}
		var full *replay.Failure
		if err == nil {
			full, err = playCounted(p, plan, &t)
		}
		if err != nil {
			return OfSeed{}, err
		}
		if full == nil {
			continue
		}
		t.failed(number)
		if number == 0 {
			break // without the optimizer's state, the steps that follow would seem to fit
		}
		p.Abandon(full)
	}
	return t.done(p), nil
}

// playCounted plays segments until one runs out of memory, and counts each with its own peaks.
func playCounted(p *replay.Player, plan []replay.Segment, t *totals) (*replay.Failure, error) {
	for _, s := range plan {
		p.Allocator.ResetPeaks()
		full, err := p.Play(s)
		if err != nil {
			return nil, err
		}
		t.add(s, peaksOf(p), full == nil)
		if full != nil {
			return full, nil
		}
	}
	return nil, nil
}

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

// sampler draws the samples of a run.
type sampler struct {
	lengths, labels []int64
	batch, group    int  // samples of a micro-batch, and of an optimizer step
	grouped         bool // by length, as transformers' LengthGroupedSampler does
}

// epoch returns the order of one pass over all samples.
func (c *sampler) epoch(r *rand.Rand) []int {
	order := r.Perm(len(c.lengths))
	if c.grouped {
		c.sortGroups(order)
	}
	return order
}

// sortGroups follows get_length_grouped_indices of transformers.trainer_pt_utils: groups of 50
// steps, or of a quarter of the samples where there are fewer, each sorted from the longest, and
// the longest sample of all at the very start.
func (c *sampler) sortGroups(order []int) {
	size := c.group * max(min(len(order)/(4*c.group), 50), 1)
	longest := 0
	for start := 0; start < len(order); start += size {
		slices.SortStableFunc(order[start:min(start+size, len(order))], func(a, b int) int {
			return cmp.Compare(c.lengths[b], c.lengths[a])
		})
		if c.lengths[order[start]] > c.lengths[order[longest]] {
			longest = start
		}
	}
	order[0], order[longest] = order[longest], order[0]
}

// shapes returns the micro-batches of a run, epoch after epoch; a rest that fills no batch is
// dropped.
func (c *sampler) shapes(seed uint64) func() trace.Shape {
	r := rand.New(rand.NewPCG(seed, 0))
	var order []int
	return func() trace.Shape {
		if len(order) < c.batch {
			order = c.epoch(r)
		}
		shape := trace.Shape{Batch: int64(c.batch)}
		for _, i := range order[:c.batch] {
			shape.Length, shape.Labels =
				max(shape.Length, c.lengths[i]), max(shape.Labels, c.labels[i])
		}
		order = order[c.batch:]
		return shape
	}
}

// windows returns the optimizer steps of a run.
func (c *sampler) windows(seed uint64, steps, accumulation int) iter.Seq2[int, []trace.Shape] {
	next := c.shapes(seed)
	return func(yield func(int, []trace.Shape) bool) {
		for number := range steps {
			window := make([]trace.Shape, accumulation)
			for i := range window {
				window[i] = next()
			}
			if !yield(number, window) {
				return
			}
		}
	}
}
