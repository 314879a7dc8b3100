package analytic

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
)

// steady is the steps after which a run repeats itself: the second puts what the model needs around the optimizer's
// state, for which the first found room in what it left free; the third meets what the second left.
const steady = 3

// simulate plays whole steps from the first one on, every layer of them, on a simulated device, and puts what its
// allocator did into an estimate.
func (m *Model) simulate(e *Estimate, r Request, set settings, s Shape) error {
	t := newTracker(set)
	t.device = &simulator{alloc: allocator.New(set.allocator)}
	e.Phases = nil
	var err error
	t.phase(e, "load", "load", func() { err = m.load(t) })
	for step := 0; step < steady && err == nil; step++ {
		for micro := 0; micro < min(max(1, int(r.Accumulation)), 2) && err == nil; micro++ {
			t.accumulating = micro > 0
			err = m.micro(t, e, s)
		}
		t.phase(e, "step", "optimizer", func() { m.wholeStep(t, step == 0) })
	}
	if err == nil {
		e.simulated(r, t.device)
	}
	return err
}

// simulated takes the peaks over from the phases.
func (e *Estimate) simulated(r Request, d *simulator) {
	e.PeakAllocated, e.PeakReserved = 0, 0
	for _, p := range e.Phases {
		e.PeakAllocated, e.PeakReserved = max(e.PeakAllocated, p.PeakAllocated), max(e.PeakReserved, p.PeakReserved)
	}
	e.reserve(r, e.PeakReserved)
	e.Retries, e.OutOfMemory = d.alloc.Stats().Retries, d.full
	if r.LimitBytes != nil {
		fits := d.full == nil
		e.Fits = &fits
	}
}

// phase plays a phase and notes its peaks beside those of its kind.
func (t *tracker) phase(e *Estimate, segment, name string, play func()) {
	d := t.device
	d.where = [2]string{segment, name}
	d.alloc.ResetPeaks()
	play()
	s := d.alloc.Stats()
	i := slices.IndexFunc(e.Phases, func(p peak.Phase) bool { return p.Segment == segment && p.Phase == name })
	if i < 0 {
		i = len(e.Phases)
		e.Phases = append(e.Phases, peak.Phase{Segment: segment, Phase: name})
	}
	p := &e.Phases[i]
	p.PeakAllocated, p.PeakReserved = max(p.PeakAllocated, s.PeakAllocated), max(p.PeakReserved, s.PeakReserved)
}

// load puts every parameter on the device.
func (m *Model) load(t *tracker) error {
	if m.adapters > 0 {
		t.allocate("adapters", of(dim{"parameters", m.adapters}), float32s, parameters, "")
	}
	return m.source.EachParameter(func(dims []int, _ bool) {
		n := int64(1)
		for _, d := range dims {
			n *= int64(d)
		}
		t.allocate("parameters", of(dim{"parameter", n}), float32s, parameters, "")
	})
}

// micro plays a micro-batch; its inputs take the place of the last one's.
func (m *Model) micro(t *tracker, e *Estimate, s Shape) error {
	segment := "micro"
	if t.accumulating {
		segment = "accumulate"
	}
	var loss value
	var err error
	t.phase(e, segment, "forward", func() {
		before := t.batch
		t.batch = nil
		if before == nil {
			t.workspaces()
		}
		for _, at := range before {
			t.release(at)
		}
		if loss, err = m.play(t, s); err == nil {
			t.endForward()
		}
	})
	if err == nil {
		t.phase(e, segment, "backward", func() { t.runBackward(loss) })
	}
	return err
}

// wholeStep is the optimizer's step with each parameter's state and gradient; the first one makes the state.
func (m *Model) wholeStep(t *tracker, first bool) {
	t.module = "optimizer"
	share := t.optimizer.stateBytes(m.profile) / max(1, int64(len(t.trained)))
	var temporary []int32
	for _, at := range t.trained {
		bytes := t.rows[t.storages[at].row].bytes()
		if first {
			for _, state := range t.optimizer.pieces(bytes, share) {
				t.piece(state, optimizer)
			}
		}
		for range t.optimizer.copies {
			temporary = append(temporary, t.piece(bytes, temporaries))
		}
	}
	for range t.optimizer.largest {
		temporary = append(temporary, t.piece(t.largestParameter, temporaries))
	}
	for _, at := range append(temporary, t.trained...) {
		t.release(at)
	}
	t.trained = t.trained[:0]
}

func (t *tracker) piece(bytes int64, p part) int32 {
	return t.allocate("optimizer", of(dim{"bytes", bytes}), bools, p, "")
}
