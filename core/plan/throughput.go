package plan

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// throughput is how fast a candidate trains: the time of a padded second of audio, and of a
// micro-batch besides its audio. Without a known device both are in seconds of audio, which is
// enough to compare batching strategies.
type throughput struct {
	timed        bool
	slowest      *estimate.Timer // of the GPU that the others wait for
	fastest      *estimate.Timer
	paces        []float64     // of each GPU, where they differ: how long it takes, the slowest 1
	paddedSecond profile.Range // of one padded second on the GPU
	micro        batching.Cost
	parts        profile.StepParts // of a usual micro-batch
	update       estimate.Update
	calibration  *timing.Calibration // of whole steps
	forward      float64             // share of a micro-batch's time that its forward pass takes
}

const (
	// UnknownOverheadS is that on a GPU of which nothing is known.
	UnknownOverheadS = 4.0
	cpuOverheadS     = 0.5 // of a large model: a CPU is busy with the shortest clips
	// forward, and backward of twice as much; checkpointing runs forward again
	passes = 3.0
)

// untimedThroughput compares candidates by the seconds that they compute.
func (s *search) untimedThroughput(f evaluated) throughput {
	ends, overhead, computed := f.traced.Work, UnknownOverheadS, 1+f.checkpointing.Share()/passes
	switch {
	case s.pool.onCPU() && len(ends) > 0:
		overhead = estimate.HostOverhead(ends[1].Work, f.traced.paddedSeconds(ends[1]),
			s.in.Hardware.CPU.UsableCores)
	case s.pool.onCPU():
		overhead = cpuOverheadS
	}
	return throughput{micro: batching.Cost{OverheadS: overhead},
		paddedSecond: profile.Range{Low: computed, Likely: computed, High: computed}}
}

// throughput is measured between a micro-batch of one short clip and one of usual size, both by the
// time model: what the GPU takes for each, and what the CPU does, which the larger one may hide.
func (s *search) throughput(f evaluated) (throughput, error) {
	ends := f.traced.Work
	if len(ends) == 0 || len(s.timers) == 0 {
		return s.untimedThroughput(f), nil
	}
	short, full := ends[0], ends[1]
	shortS, fullS := f.traced.paddedSeconds(short), f.traced.paddedSeconds(full)
	p, err := s.compareCards(full.Work)
	if err != nil {
		return throughput{}, err
	}
	small, err := p.slowest.Micro(short.Work)
	if err != nil {
		return throughput{}, err
	}
	p.update, err = p.slowest.Update(full.Work, f.optimizer, f.precision, s.pool.count)
	if err != nil {
		return throughput{}, err
	}
	if s.sharded() {
		p.update = p.slowest.Sharded(p.update, s.in.Options.Distributed, f.precision,
			s.in.Model.TotalParameters, full.Work.TrainedParameters, s.pool.count)
	}
	slope := func(a, b float64) float64 {
		return max(b-a, 0.01*b) / max(fullS-shortS, 0.5*fullS)
	}
	low, high := small.OnGPU(), p.parts.OnGPU()
	p.paddedSecond = profile.Range{Low: slope(low.Low, high.Low),
		Likely: slope(low.Likely, high.Likely), High: slope(low.High, high.High)}
	host, err := p.slowest.Host(full.Work)
	if err != nil {
		return throughput{}, err
	}
	p.micro = batching.Cost{HostS: host / p.paddedSecond.Likely,
		OverheadS: max(0, low.Likely/p.paddedSecond.Likely-shortS)}
	if p.forward, err = p.slowest.Forward(full.Work); f.guessed {
		again := f.recomputed()
		p.paddedSecond, p.parts = p.paddedSecond.Times(again), p.parts.Times(again)
	}
	return p, err
}

// recomputed is how much longer a guessed candidate takes than the trace that its work is from.
func (f evaluated) recomputed() float64 {
	from := f.traced.Recomputed()
	if f.checkpointing.Partly() {
		from = profile.Checkpointing{} // of the trace without any
	}
	return (passes + f.checkpointing.Share()) / (passes + from.Share())
}

// epoch is the clips of which an epoch is simulated, and how.
func (s *search) epoch(f evaluated) ([]float64, batching.Options) {
	step := s.perDevice * s.pool.count
	return s.clips.sample(step, s.pool.count), batching.Options{Mode: batching.Stratified,
		StepSamples: step, Ranks: s.pool.count, Seed: 1, Buckets: UsualBuckets,
		Cost: f.throughput.micro, Memory: f.memory, Paces: f.throughput.paces}
}

// batchesOf are those of an epoch of all clips, by the figures of those that were simulated.
func (s *search) batchesOf(f evaluated, figures batching.Figures, microBatching string) batches {
	step := s.perDevice * s.pool.count
	scale := float64(s.clips.count) / float64(f.simulated)
	b := batches{order: figures.Order, microBatching: microBatching, figures: figures,
		costS: figures.SlowestS * scale, steps: max(1, (s.clips.count+step-1)/step)}
	b.microBatches = float64(figures.MicroBatches) * scale / float64(s.pool.count*b.steps)
	b.epoch = f.throughput.epoch(b)
	return b
}

// finish is the update that ends a mean step.
func (p throughput) finish(b batches) profile.StepParts {
	return p.update.After(int(math.Round(b.microBatches)))
}

// epoch is how long an epoch takes, the loader's time not counted.
func (p throughput) epoch(b batches) profile.Range {
	predicted := p.paddedSecond.Times(b.costS).Plus(p.finish(b).Sum().Times(float64(b.steps)))
	if p.calibration == nil {
		return predicted
	}
	return p.calibration.Apply(predicted)
}

// step is the parts of an optimizer step, as likely as the mean of the epoch's: those of a usual
// micro-batch stand for all.
func (p throughput) step(b batches) profile.StepParts {
	micro := p.paddedSecond.Likely * b.costS / float64(b.steps)
	parts := p.parts.Times(micro / p.parts.Sum().Likely).Plus(p.finish(b))
	if p.calibration == nil {
		return parts
	}
	return parts.Times(p.calibration.Factor)
}
