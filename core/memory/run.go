package memory

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// RunRequest is a question about a whole training: over samples in several orders, or over micro-batches that are known.
type RunRequest struct {
	Lengths      []int64 `json:"lengths"`      // of every sample's input, 1 to 2^32, in the trace's units
	Labels       []int64 `json:"labels"`       // of every sample's transcript, 0 to 2^20; 0 each when absent
	Batch        int     `json:"batch"`        // samples of a micro-batch, 1 to 65536
	Accumulation *int    `json:"accumulation"` // micro-batches of an optimizer step, 1 to 65536; as traced when absent
	Steps        int     `json:"steps"`        // optimizer steps of each seed, 1 to 100 000
	Seeds        int     `json:"seeds"`        // orders to try, 1 to 1000
	Order        string  `json:"order"`        // "random" or "grouped", as the Trainer's group_by_length; "random"

	// Instead of all these: up to 100 000 optimizer steps, each of 1 to 65536 micro-batches of batch, length and labels.
	Windows [][][3]int64 `json:"windows"`

	Overhead    float64 `json:"overhead"`     // what a micro-batch costs beside batch × length, in units of length; 0 or more
	Settings    string  `json:"settings"`     // text of PYTORCH_CUDA_ALLOC_CONF
	LimitBytes  *uint64 `json:"limit_bytes"`  // what the allocator may reserve in all; no limit when absent
	DeviceBytes *uint64 `json:"device_bytes"` // what the process takes beside the allocator
	reduction.GPU
}

const (
	maxRunSteps  = 100_000
	maxSeeds     = 1000
	maxClips     = 10_000_000
	maxRunEvents = 1 << 31 // of all seeds: some minutes on two cores
)

// run is a checked request.
type run struct {
	steps, seeds int
	largest      []trace.Shape                          // the window that takes most, to play alone
	micros       int                                    // micro-batches of one seed
	windows      func(seed uint64) func() []trace.Shape // gives the windows of a seed, one after the other
}

// Run plays a training through an allocator of its own, or in several orders of its samples one in each: what is reserved
// depends on the order in which lengths come. A step that runs out of memory is given up, and the run goes on with the next
// one, from an emptied cache; one that does so in its first step ends there.
func (m *Model) Run(r RunRequest) (RunEstimate, error) {
	settings, err := settingsOf(r.Settings, r.LimitBytes, r.DeviceBytes)
	if err != nil {
		return RunEstimate{}, err
	}
	asked, err := m.checkedRun(r)
	if err != nil {
		return RunEstimate{}, err
	}
	largest, err := m.largestOnly(asked, r)
	if err != nil {
		return RunEstimate{}, err
	}
	seeds := make([]OfSeed, asked.seeds)
	err = inParallel(asked.seeds, func(i int) (err error) {
		seeds[i], err = m.runSeed(replay.New(m.templates.Variables, settings, r.GPU), asked, uint64(i), r.Overhead)
		return err
	})
	if err != nil {
		return RunEstimate{}, err
	}
	return runEstimate(seeds, largest, r.DeviceBytes), nil
}

// largestOnly plays a few steps of the largest batch there can be, and sees to it that the run is not too long.
func (m *Model) largestOnly(asked *run, r RunRequest) (Peaks, error) {
	plan := m.load()
	for number := range defaultSteps {
		window, err := m.window(number, asked.largest)
		if err != nil {
			return Peaks{}, err
		}
		plan = append(plan, window...)
	}
	each := float64(replay.Events(plan)) / float64(defaultSteps*len(asked.largest))
	if each*float64(asked.micros)*float64(asked.seeds) > maxRunEvents {
		return Peaks{}, fault.New(fault.InvalidArgument, "ask for fewer steps or seeds", "more than %d events to play", maxRunEvents)
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
func (m *Model) runSeed(p *replay.Player, asked *run, seed uint64, overhead float64) (OfSeed, error) {
	t := runTally{OfSeed: OfSeed{Seed: seed}, overhead: overhead}
	next := asked.windows(seed)
	for number := range asked.steps {
		plan, err := m.window(number, next())
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
func playCounted(p *replay.Player, plan []replay.Segment, t *runTally) (*replay.Failure, error) {
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
