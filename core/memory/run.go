package memory

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// RunRequest is a question about a whole training over known micro-batches.
type RunRequest struct {
	// 1 to 100 000 optimizer steps, each of 1 to 65536 micro-batches of batch, length and labels
	Windows [][][3]int64 `json:"windows"`

	// what a micro-batch costs besides batch × length, in units of length; 0 or more
	Overhead float64 `json:"overhead"`
	Device
}

const (
	maxRunSteps  = 100_000
	maxRunEvents = 1 << 31 // some minutes
)

// Run plays a training through one allocator, from its first step to its last: what is reserved
// depends on the order in which lengths come. A step that runs out of memory is given up, and the
// run continues with the next one, from an emptied cache; one that does so in its first step ends
// there.
func (m *Model) Run(r RunRequest) (RunEstimate, error) {
	settings, err := r.settings()
	if err != nil {
		return RunEstimate{}, err
	}
	shape, micros, err := m.checkWindows(r)
	if err != nil {
		return RunEstimate{}, err
	}
	p := replay.New(m.templates.Variables, settings, r.GPU)
	settings.Limit, settings.DeviceTotal = 0, 0
	largest, err := m.playLargest(replay.New(m.templates.Variables, settings, r.GPU), shape, micros)
	if err != nil {
		return RunEstimate{}, err
	}
	t := totals{RunEstimate: RunEstimate{Largest: largest}, overhead: r.Overhead}
	err = m.playWindows(p, r.Windows, &t)
	return t.RunEstimate, err
}

// playLargest replays a few steps of the largest micro-batch alone, and limits the length of the
// run.
func (m *Model) playLargest(p *replay.Player, largest trace.Shape, micros int) (Peaks, error) {
	plan, err := m.windows(defaultSteps, []trace.Shape{largest})
	if err != nil {
		return Peaks{}, err
	}
	perMicroBatch := float64(replay.Events(plan)) / defaultSteps
	if perMicroBatch*float64(micros) > maxRunEvents {
		return Peaks{}, fault.New(fault.InvalidArgument, "ask for fewer steps",
			"more than %d events to simulate", maxRunEvents)
	}
	_, err = p.PlayAll(plan)
	return peaksOf(p), err
}

func peaksOf(p *replay.Player) Peaks {
	s := p.Allocator.Stats()
	return Peaks{s.PeakAllocated, s.PeakReserved}
}

// playWindows plays the windows through a fresh player, and counts what they take.
func (m *Model) playWindows(p *replay.Player, windows [][][3]int64, t *totals) error {
	for number, window := range windows {
		shapes := make([]trace.Shape, len(window))
		for i, dims := range window {
			shapes[i] = shapeOf(dims)
		}
		plan, err := m.window(number, shapes)
		if number == 0 {
			plan = append(m.load(), plan...)
		}
		var full *replay.Failure
		if err == nil {
			full, err = playCounted(p, plan, t)
		}
		if err != nil {
			return err
		}
		if full == nil {
			continue
		}
		if t.Failed++; t.Failed == 1 {
			t.FirstFailed = &number
		}
		if number == 0 {
			break // without the optimizer's state, the steps that follow would seem to fit
		}
		p.Abandon(full)
	}
	t.Retries = p.Allocator.Stats().Retries
	if t.MicroBatches > 0 {
		mean, byTime := t.sum/float64(t.MicroBatches), t.weighted/t.weight
		t.MeanPeak, t.MeanByTime = &mean, &byTime
	}
	return nil
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

// Peaks are the highest figures of a run, in bytes.
type Peaks struct {
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
}

// RunEstimate is what a training over known micro-batches needs. Sizes are bytes. Steps that ran
// out of memory were given up.
type RunEstimate struct {
	Peaks
	Retries      uint64 `json:"retries"`
	Failed       int    `json:"failed_steps"`      // those that ran out of memory
	FirstFailed  *int   `json:"first_failed_step"` // counted from 0; null without one
	MicroBatches int    `json:"micro_batches"`     // those played to their ends
	// the most allocated in a micro-batch, mean of them; null without one
	MeanPeak *float64 `json:"mean_peak"`
	// likewise, weighted by their padded seconds and overhead
	MeanByTime *float64 `json:"mean_peak_by_time"`
	// of steps of the largest micro-batch alone, without a limit
	Largest Peaks `json:"largest_batch_only"`
}

// totals adds up what a run plays.
type totals struct {
	RunEstimate
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

// checkWindows counts the micro-batches of a request that is in range, and finds the largest.
func (m *Model) checkWindows(r RunRequest) (largest trace.Shape, micros int, err error) {
	if err := r.Device.check(); err != nil {
		return largest, 0, err
	}
	switch {
	case !(r.Overhead >= 0 && r.Overhead <= 1e15):
		return largest, 0, outOfRange("overhead is %g; pass 0 to 1e15", r.Overhead)
	case !m.templates.HasShapes():
		return largest, 0, fault.New(fault.Unsupported,
			"name batch, length and labels in step() when you record",
			"the trace names no shapes, so it holds only for the recorded ones")
	case len(r.Windows) == 0 || len(r.Windows) > maxRunSteps:
		return largest, 0, outOfRange("%d windows; the range is 1 to %d", len(r.Windows),
			maxRunSteps)
	}
	for number, window := range r.Windows {
		if len(window) == 0 || len(window) > maxAccumulation {
			return largest, 0, outOfRange("window %d has %d micro-batches; the range is 1 to %d",
				number, len(window), maxAccumulation)
		}
		micros += len(window)
		for i, dims := range window {
			shape := shapeOf(dims)
			if err := shape.Check(); err != nil {
				return largest, 0, outOfRange("window %d, micro-batch %d: %s", number, i, err)
			}
			if shape.Batch*shape.Length > largest.Batch*largest.Length {
				largest = shape
			}
		}
	}
	return largest, micros, nil
}

// shapeOf names batch, length and labels.
func shapeOf(dims [3]int64) trace.Shape {
	return trace.Shape{Batch: dims[0], Length: dims[1], Labels: dims[2]}
}
