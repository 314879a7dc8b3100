package plan

import (
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// throughput is how fast a candidate trains: what a padded second of audio takes, and what a micro-batch takes beside its seconds.
// Without a known device both are in seconds of audio, which is enough to compare strategies of batches.
type throughput struct {
	known        bool
	slowest      *estimate.Timer // of the GPU that the others wait for
	fastest      *estimate.Timer
	paces        []float64    // of each GPU, where they differ: how long it takes, the slowest 1
	paddedSecond timing.Range // of one padded second in a micro-batch of usual size
	overheadS    float64      // of one micro-batch, in seconds of audio
	parts        timing.Parts // of a usual micro-batch
	finish       func(accumulation float64) timing.Parts
	calibration  *timing.Calibration // of whole steps
}

const (
	unknownOverheadS = 4.0 // on a GPU of which nothing is known
	cpuOverheadS     = 0.5 // of a large model: a CPU is busy with the shortest clips
	passes           = 3.0 // forward, and backward of twice as much; checkpointing runs forward once more
)

// unknownThroughput compares candidates by the seconds that they compute.
func unknownThroughput(w candidate, onCPU bool) throughput {
	p := throughput{paddedSecond: timing.Range{Low: 1, Likely: 1, High: 1}, overheadS: unknownOverheadS,
		finish: func(float64) timing.Parts { return timing.Parts{} }}
	if onCPU {
		p.overheadS = cpuOverheadS
	}
	p.paddedSecond = p.paddedSecond.Times(1 + w.checkpointing.Share()/passes)
	return p
}

// throughput is measured between a micro-batch of one short clip and one of usual size, both by the time model.
func (s *search) throughput(w candidate, traced *Traced, usual int) (throughput, error) {
	ends, err := s.work(w, traced, usual)
	if err != nil {
		return throughput{}, err
	}
	if len(ends) == 0 || len(s.timers) == 0 {
		p := unknownThroughput(w, s.pool.onCPU())
		if s.estimator != nil && s.pool.onCPU() {
			p.overheadS = estimate.HostOverhead(ends[1].Work, ends[1].held(), s.in.Hardware.CPU.UsableCores)
		}
		return p, nil
	}
	least, full := ends[0], ends[1]
	p, err := s.compareCards(full.Work)
	if err != nil {
		return throughput{}, err
	}
	small, err := p.slowest.Micro(least.Work)
	if err != nil {
		return throughput{}, err
	}
	update, err := p.slowest.Update(full.Work, w.optimizer, w.precision, s.pool.count)
	if err != nil {
		return throughput{}, err
	}
	slope := func(a, b float64) float64 {
		return max(b-a, 0.01*b) / max(full.held()-least.held(), 0.5*full.held())
	}
	low, high := small.Sum(), p.parts.Sum()
	p.paddedSecond = timing.Range{Low: slope(low.Low, high.Low), Likely: slope(low.Likely, high.Likely), High: slope(low.High, high.High)}
	p.overheadS = max(0, low.Likely/p.paddedSecond.Likely-least.held())
	p.finish = func(accumulation float64) timing.Parts { return update.After(int(accumulation + 0.5)) }
	return p, nil
}

// work is that of a micro-batch of one short clip, and of one of usual size: from the config, as in comparisons, or by the trace of a
// model that is known by its traces alone. None where neither tells.
func (s *search) work(w candidate, traced *Traced, usual int) ([]TracedWork, error) {
	if s.estimator == nil {
		if traced == nil {
			return nil, nil
		}
		return traced.Work, nil
	}
	q := s.question(w, 1)
	ends := []TracedWork{{Batch: 1, Seconds: estimate.Shortest}, {Batch: usual, Seconds: s.clips.mean()}}
	for i := range ends {
		var err error
		q.Batch, q.Seconds = ends[i].Batch, ends[i].Seconds
		if ends[i].Work, err = s.estimator.Work(q); err != nil {
			return nil, err
		}
	}
	return ends, nil
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
