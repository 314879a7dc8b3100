package memory

import (
	"runtime"
	"slices"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// RunRequest is a question about a whole training over given samples.
type RunRequest struct {
	Lengths      []int64 `json:"lengths"`      // of every sample's input, 1 to 2^32, in the trace's units
	Labels       []int64 `json:"labels"`       // of every sample's transcript, 0 to 2^20; 0 each when absent
	Batch        int     `json:"batch"`        // samples of a micro-batch, 1 to 65536
	Accumulation *int    `json:"accumulation"` // micro-batches of an optimizer step, 1 to 65536; as traced when absent
	Steps        int     `json:"steps"`        // optimizer steps of each seed, 1 to 100 000
	Seeds        int     `json:"seeds"`        // orders to try, 1 to 1000
	Order        string  `json:"order"`        // "random" or "grouped", as the Trainer's group_by_length; "random"
	Settings     string  `json:"settings"`     // text of PYTORCH_CUDA_ALLOC_CONF
	LimitBytes   *uint64 `json:"limit_bytes"`  // what the allocator may reserve in all; no limit when absent
	DeviceBytes  *uint64 `json:"device_bytes"` // what the process takes beside the allocator
	GPU
}

// RunEstimate is what a training over given samples needs. Sizes are bytes.
type RunEstimate struct {
	PeakAllocated Spread   `json:"peak_allocated"`
	PeakReserved  Spread   `json:"peak_reserved"`
	PeakDevice    *Spread  `json:"peak_device"` // reserved and device_bytes; null without them
	Retries       Spread   `json:"retries"`
	OutOfMemory   float64  `json:"out_of_memory"`      // share of the seeds that ran out of memory, 0 to 1
	Largest       Peaks    `json:"largest_batch_only"` // of steps that all have the longest input and transcript, without a limit
	Seeds         []OfSeed `json:"seeds"`
}

// Spread is a figure over the seeds.
type Spread struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"` // between the two nearest seeds where none is at 99 %
	Worst  float64 `json:"worst"`
}

// Peaks are the highest figures of a run, in bytes.
type Peaks struct {
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
}

// OfSeed is one order of the samples.
type OfSeed struct {
	Seed uint64 `json:"seed"`
	Peaks
	Retries     uint64 `json:"retries"`
	OutOfMemory bool   `json:"out_of_memory"` // the run ended there
}

const (
	maxRunSteps  = 100_000
	maxSeeds     = 1000
	maxClips     = 10_000_000
	maxRunEvents = 1 << 29 // of all seeds: about twenty seconds on two cores
)

// Run plays a training in several orders of its samples, each through an allocator of its own: what is reserved depends on
// the order in which lengths come.
func (m *Model) Run(r RunRequest) (RunEstimate, error) {
	settings, err := settingsOf(r.Settings, r.LimitBytes, r.DeviceBytes)
	if err != nil {
		return RunEstimate{}, err
	}
	if err := m.checkRun(&r); err != nil {
		return RunEstimate{}, err
	}
	accumulation := orElse(r.Accumulation, m.accumulation())
	c := &clips{r.Lengths, r.Labels, r.Batch, r.Batch * accumulation, r.Order == "grouped"}
	largest, err := m.largestOnly(c, accumulation, r)
	if err != nil {
		return RunEstimate{}, err
	}
	seeds := make([]OfSeed, r.Seeds)
	err = inParallel(r.Seeds, func(i int) (err error) {
		seeds[i], err = m.runSeed(newPlayer(m, settings, r.GPU), c, uint64(i), accumulation, r.Steps)
		return err
	})
	if err != nil {
		return RunEstimate{}, err
	}
	return runEstimate(seeds, largest, r.DeviceBytes), nil
}

func (m *Model) checkRun(r *RunRequest) error {
	batch, longest, tokens := int64(r.Batch), int64(1), int64(0)
	check := Request{Batch: &batch, Length: &longest, Labels: &tokens, Accumulation: r.Accumulation, LimitBytes: r.LimitBytes, DeviceBytes: r.DeviceBytes, GPU: r.GPU}
	if err := check.check(); err != nil {
		return err
	}
	switch {
	case len(r.Lengths) < r.Batch || len(r.Lengths) > maxClips:
		return outOfRange("%d lengths; the range is %d, one batch, to %d", len(r.Lengths), r.Batch, maxClips)
	case len(r.Labels) > 0 && len(r.Labels) != len(r.Lengths):
		return outOfRange("%d labels for %d lengths", len(r.Labels), len(r.Lengths))
	case r.Steps < 1 || r.Steps > maxRunSteps:
		return outOfRange("steps is %d; the range is 1 to %d", r.Steps, maxRunSteps)
	case r.Seeds < 1 || r.Seeds > maxSeeds:
		return outOfRange("seeds is %d; the range is 1 to %d", r.Seeds, maxSeeds)
	case r.Order != "" && r.Order != "random" && r.Order != "grouped":
		return fault.New(fault.InvalidArgument, `give "random" or "grouped"`, "order %q is not known", fault.Shorten(r.Order))
	case !m.hasShapes():
		return fault.New(fault.Unsupported, "name batch, length and labels in step() when you record", "the trace says no shapes, so it does not answer for others")
	}
	if len(r.Labels) == 0 {
		r.Labels = make([]int64, len(r.Lengths))
	}
	for i := range r.Lengths {
		if err := (Shape{batch, r.Lengths[i], r.Labels[i]}).check(); err != nil {
			return outOfRange("sample %d: %s", i, err)
		}
	}
	return nil
}

// largestOnly plays a few steps of the largest batch there can be, and sees to it that the run is not too long.
func (m *Model) largestOnly(c *clips, accumulation int, r RunRequest) (Peaks, error) {
	shape := Shape{int64(c.batch), slices.Max(c.lengths), slices.Max(c.labels)}
	plan, err := m.repeated(shape, accumulation, defaultSteps)
	if err != nil {
		return Peaks{}, err
	}
	if float64(eventsOf(plan))/defaultSteps*float64(r.Steps)*float64(r.Seeds) > maxRunEvents {
		return Peaks{}, fault.New(fault.InvalidArgument, "ask for fewer steps or seeds", "more than %d events to play", maxRunEvents)
	}
	settings, err := settingsOf(r.Settings, nil, nil)
	if err != nil {
		return Peaks{}, err
	}
	p := newPlayer(m, settings, r.GPU)
	_, err = p.playAll(plan)
	return p.peaks(), err
}

func (p *player) peaks() Peaks {
	s := p.alloc.Stats()
	return Peaks{s.PeakAllocated, s.PeakReserved}
}

// runSeed plays one order of the samples through a fresh player, until it ends or memory does.
func (m *Model) runSeed(p *player, c *clips, seed uint64, accumulation, steps int) (OfSeed, error) {
	next := c.shapes(seed)
	full, err := p.playAll(m.load())
	shapes := make([]Shape, accumulation)
	for step := 0; step < steps && full == nil && err == nil; step++ {
		for i := range shapes {
			shapes[i] = next()
		}
		var plan []planned
		if plan, err = m.window(step, shapes); err == nil {
			full, err = p.playAll(plan)
		}
	}
	return OfSeed{Seed: seed, Peaks: p.peaks(), Retries: p.alloc.Stats().Retries, OutOfMemory: full != nil}, err
}

// inParallel runs n jobs on all cores and gives the first error. A panic in one poisons the library, as anywhere.
func inParallel(n int, job func(i int) error) error {
	errs := make([]error, n)
	var workers sync.WaitGroup
	indices := make(chan int)
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range indices {
				errs[i] = recovered(func() error { return job(i) })
			}
		}()
	}
	for i := range n {
		indices <- i
	}
	close(indices)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func recovered(job func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Poison("memory run", p)
		}
	}()
	return job()
}

func runEstimate(seeds []OfSeed, largest Peaks, device *uint64) RunEstimate {
	over := func(of func(OfSeed) uint64) Spread {
		values := make([]float64, len(seeds))
		for i, s := range seeds {
			values[i] = float64(of(s))
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
		if s.OutOfMemory {
			failed++
		}
	}
	e.OutOfMemory = float64(failed) / float64(len(seeds))
	if device != nil {
		d := float64(*device)
		e.PeakDevice = &Spread{e.PeakReserved.Median + d, e.PeakReserved.P99 + d, e.PeakReserved.Worst + d}
	}
	return e
}

// spreadOf sorts the values.
func spreadOf(values []float64) Spread {
	slices.Sort(values)
	at := func(share float64) float64 {
		place := share * float64(len(values)-1)
		below := int(place)
		above := min(below+1, len(values)-1)
		return values[below] + (place-float64(below))*(values[above]-values[below])
	}
	return Spread{at(0.5), at(0.99), values[len(values)-1]}
}
