package plan

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// throughput is how fast a candidate trains: what a padded second of audio takes, and what a micro-batch takes beside its seconds.
// Without a known device both are in seconds of audio, which is enough to compare strategies of batches.
type throughput struct {
	known        bool
	paddedSecond timing.Range // of one padded second in a micro-batch of usual size
	overheadS    float64      // of one micro-batch, in seconds of audio
	parts        timing.Parts // of a usual micro-batch
	finish       func(accumulation float64) timing.Parts
	calibration  *timing.Calibration // of whole steps
}

const (
	unknownOverheadS = 4.0     // on a GPU of which nothing is known
	cpuOverheadS     = 0.5     // of a large model: a CPU is busy with the shortest clips
	recomputing      = 4.0 / 3 // forward, backward of twice as much, and with checkpointing forward once more
)

// unknownThroughput compares candidates by the seconds that they compute.
func unknownThroughput(w candidate, onCPU bool) throughput {
	p := throughput{paddedSecond: timing.Range{Low: 1, Likely: 1, High: 1}, overheadS: unknownOverheadS,
		finish: func(float64) timing.Parts { return timing.Parts{} }}
	if onCPU {
		p.overheadS = cpuOverheadS
	}
	if w.checkpointing {
		p.paddedSecond = p.paddedSecond.Times(recomputing)
	}
	return p
}

// throughput is measured between a micro-batch of one short clip and one of usual size, both by the time model.
func (s *search) throughput(w candidate, usual int) (throughput, error) {
	if s.estimator == nil || s.timer == nil {
		p, err := unknownThroughput(w, s.pool.onCPU()), error(nil)
		if s.estimator != nil && s.pool.onCPU() {
			p.overheadS, err = s.hostOverhead(w, usual)
		}
		return p, err
	}
	q := s.question(w, 1)
	at := func(batch int, seconds float64) (parts timing.Parts, work analytic.Work, err error) {
		q.Batch, q.Seconds = batch, seconds
		if work, err = s.estimator.Work(q); err == nil {
			parts, err = s.timer.Micro(work)
		}
		return parts, work, err
	}
	mean := s.clips.mean()
	least, _, err := at(1, estimate.Shortest)
	if err != nil {
		return throughput{}, err
	}
	full, work, err := at(usual, mean)
	if err != nil {
		return throughput{}, err
	}
	update, err := s.timer.Update(work, w.optimizer, w.precision, s.pool.count)
	if err != nil {
		return throughput{}, err
	}
	held := float64(usual) * mean
	slope := func(a, b float64) float64 { return max(b-a, 0.01*b) / max(held-estimate.Shortest, 0.5*held) }
	small, large := least.Sum(), full.Sum()
	p := throughput{known: true, parts: full, calibration: s.in.Options.Calibration, paddedSecond: timing.Range{
		Low: slope(small.Low, large.Low), Likely: slope(small.Likely, large.Likely), High: slope(small.High, large.High)}}
	p.overheadS = max(0, small.Likely/p.paddedSecond.Likely-estimate.Shortest)
	p.finish = func(accumulation float64) timing.Parts { return update.After(int(accumulation + 0.5)) }
	return p, nil
}

// hostOverhead is what a micro-batch takes on a CPU beside its seconds, in seconds of audio.
func (s *search) hostOverhead(w candidate, usual int) (float64, error) {
	q := s.question(w, usual)
	q.Seconds = s.clips.mean()
	work, err := s.estimator.Work(q)
	return estimate.HostOverhead(work, float64(usual)*q.Seconds, s.in.Hardware.CPU.UsableCores), err
}

// epoch is how long an epoch takes, the loader's time not counted.
func (p throughput) epoch(b batches) timing.Range {
	predicted := p.paddedSecond.Times(b.costS).Plus(p.finish(b.microBatches).Sum().Times(float64(b.steps)))
	if p.calibration == nil {
		return predicted
	}
	return p.calibration.Apply(predicted)
}

// step is the parts of an optimizer step, as likely as the mean of the epoch's: those of a usual micro-batch stand for all.
func (p throughput) step(b batches) timing.Parts {
	finish := p.finish(b.microBatches)
	micro := p.paddedSecond.Likely * b.costS / float64(b.steps)
	parts := p.parts.Times(micro / p.parts.Sum().Likely).Plus(finish)
	if p.calibration == nil {
		return parts
	}
	return parts.Times(p.calibration.Factor)
}

// slowest is the GPU that the others wait for: the one with the least operations per second.
func slowest(gpus []profile.GPU) profile.GPU {
	rate := func(g profile.GPU) float64 {
		return profile.Or(g.TensorTFLOPS, profile.Or(g.FP32TFLOPS, 0))
	}
	found := gpus[0]
	for _, g := range gpus[1:] {
		if rate(g) < rate(found) {
			found = g
		}
	}
	return found
}
