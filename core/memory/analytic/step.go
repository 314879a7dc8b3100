package analytic

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Estimate plays one training step in a steady run: the optimizer's state is there, and with accumulation the gradients
// of earlier micro-batches too. Errors: InvalidArgument for a value out of range and for a clip that the model cannot
// take.
func (m *Model) Estimate(r Request) (Estimate, error) {
	set, err := r.settings()
	if err != nil {
		return Estimate{}, err
	}
	s := Shape{Batch: r.Batch, Seconds: r.Seconds, Labels: profile.Or(r.Labels, int64(m.family.labelsPerSecond*r.Seconds+0.5))}
	t := newTape(set)
	m.standing(t, set)
	if set.accumulating {
		t.place = ""
		t.birth("parameter gradients", of(dim{"trained parameters", m.profile.TrainableParameters}), float32s, gradients, "one per trained parameter")
	}
	loss, err := m.family.play(m, t, s)
	if err != nil {
		return Estimate{}, err
	}
	t.endForward()
	forward := t.window
	t.window = &window{}
	t.runBackward(loss)
	backward := t.window
	t.window = &window{}
	m.step(t, set)
	return m.answer(r, t, set, [3]*window{forward, backward, t.window}), nil
}

// standing is what is there before the step begins.
func (m *Model) standing(t *tape, set settings) {
	p := m.profile
	t.birth("parameters", of(dim{"parameters", p.TotalParameters}), float32s, parameters, "core/model, exact")
	if state := set.optimizer.stateBytes(p); state > 0 {
		t.birth("optimizer state ("+set.optimizer.name+")", of(dim{"bytes", state}), bools, optimizer, set.optimizer.why)
	}
	// One for the thread of the forward pass, one for autograd's.
	for range 2 {
		t.birth("cuBLAS workspace", of(dim{"bytes", set.gpu.cublasBytes()}), bools, workspaces, "aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize")
	}
}

// cublasBytes is PyTorch's default workspace of a cuBLAS handle: 32 MiB from Hopper on, else ":4096:2:16:8".
func (c capability) cublasBytes() int64 {
	if c.major >= 9 {
		return 32 << 20
	}
	return (2*4096 + 8*16) << 10
}

// step is the optimizer's: the micro-batch is over, its gradients are there.
func (m *Model) step(t *tape, set settings) {
	t.place, t.backward = "optimizer", false
	if bytes := set.optimizer.stepBytes(m.profile, t.widest); bytes > 0 {
		t.release(t.birth("step ("+set.optimizer.name+")", of(dim{"bytes", bytes}), bools, temporaries, set.optimizer.why))
		return
	}
	t.birth("step", of(dim{"bytes", 0}), bools, temporaries, "in place")
}

func (m *Model) answer(r Request, t *tape, set settings, windows [3]*window) Estimate {
	segment := "micro"
	if set.accumulating {
		segment = "accumulate"
	}
	names := [3][2]string{{segment, "forward"}, {segment, "backward"}, {"step", "optimizer"}}
	highest := 0
	e := Estimate{Estimator: "analytic", Notes: m.notes(r, set)}
	for i, w := range windows {
		if w.peak.total > windows[highest].peak.total {
			highest = i
		}
		e.Phases = append(e.Phases, Phase{names[i][0], names[i][1], w.peak.total, reserved(w.peak.total)})
	}
	w := windows[highest]
	e.PeakAllocated = w.peak.total
	e.Terms, e.PeakRequested = t.terms(&w.peak)
	e.AtPeak = Peak{Segment: names[highest][0], Phase: names[highest][1], Op: w.op, Module: w.place,
		Components: w.peak.components(), Modules: t.modules(&w.peak)}
	e.PeakReserved = reserved(e.PeakAllocated)
	e.Fragmentation = 1 - float64(e.PeakAllocated)/float64(e.PeakReserved)
	if r.DeviceBytes != nil {
		device := e.PeakReserved + *r.DeviceBytes
		e.PeakDevice = &device
	}
	if r.LimitBytes != nil {
		fits := e.PeakReserved <= *r.LimitBytes
		e.Fits = &fits
	}
	return e
}

// reserved is what the caching allocator holds for an allocated peak.
func reserved(allocated int64) int64 { return allocated }

func (m *Model) notes(r Request, set settings) []string {
	notes := []string{}
	if r.Labels == nil {
		notes = append(notes, fmt.Sprintf("labels assumed: %v tokens a second", m.family.labelsPerSecond))
	}
	return notes
}
