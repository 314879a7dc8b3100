package plan

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
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
	if s.estimator == nil || s.rates == nil {
		p, err := unknownThroughput(w, s.pool.onCPU()), error(nil)
		if s.estimator != nil && s.pool.onCPU() {
			p.overheadS, err = s.hostOverhead(w, usual)
		}
		return p, err
	}
	q := s.question(w, 1)
	at := func(batch int, seconds float64) (timing.Parts, int64, error) {
		q.Batch = batch
		work, err := s.estimator.Work(q, s.clips.longest())
		if err != nil {
			return timing.Parts{}, 0, err
		}
		return s.rates.Micro(work.At(seconds)), work.Trained, nil
	}
	mean := s.clips.mean()
	least, trained, err := at(1, estimate.Shortest)
	if err != nil {
		return throughput{}, err
	}
	full, _, err := at(usual, mean)
	if err != nil {
		return throughput{}, err
	}
	held := float64(usual) * mean
	slope := func(a, b float64) float64 { return max(b-a, 0.01*b) / max(held-estimate.Shortest, 0.5*held) }
	small, large := least.Sum(), full.Sum()
	p := throughput{known: true, parts: full, calibration: s.in.Options.Calibration, paddedSecond: timing.Range{
		Low: slope(small.Low, large.Low), Likely: slope(small.Likely, large.Likely), High: slope(small.High, large.High)}}
	p.overheadS = max(0, small.Likely/p.paddedSecond.Likely-estimate.Shortest)
	p.finish = func(accumulation float64) timing.Parts {
		return s.rates.Finish(trained, w.optimizer, max(1, int(accumulation+0.5)), s.pool.count)
	}
	return p, nil
}

// hostOverhead is what a micro-batch takes on a CPU beside its seconds, in seconds of audio.
func (s *search) hostOverhead(w candidate, usual int) (float64, error) {
	work, err := s.estimator.Work(s.question(w, usual), s.clips.longest())
	if err != nil {
		return 0, err
	}
	mean := s.clips.mean()
	return timing.HostOverhead(work.At(mean), float64(usual)*mean, work.Trained, s.in.Hardware.CPU.UsableCores), nil
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
