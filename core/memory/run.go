package memory

import (
	"iter"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
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
