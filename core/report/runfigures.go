package report

import (
	"cmp"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

func (g *gpu) row(values runlog.Column) line { return line{g.times, values} }

func (h *host) row(values runlog.Column) line { return line{h.times, values} }

// positive is nil of 0, which stands for what is not known.
func positive(bytes uint64) *float64 { return when(bytes > 0, float64(bytes)) }

func (g *gpu) figures() view.GPUFigures {
	a := &g.activity
	peakAt, peak := g.used.best(1)
	leftAt, left := g.left().best(-1)
	power := g.row(a.PowerW).totals()
	return view.GPUFigures{
		Label: g.label, Name: g.Name, Total: positive(g.TotalBytes), UsedMean: g.used.mean(), UsedPeak: peak, UsedPeakAt: peakAt,
		Allocated: g.allocated.top(), Reserved: g.reserved.top(), Headroom: left, HeadroomAt: leftAt, Others: g.row(a.Others).top(),
		Utilization: g.row(a.Utilization).mean(), MemoryBusy: g.row(a.MemoryBusy).mean(), SMActive: g.row(a.SMActive).mean(), TensorActive: g.row(a.TensorActive).mean(), Power: g.row(a.PowerW).mean(),
		EnergyWh: when(power.n > 0, power.integral/3600), Hottest: g.row(a.Temperature).top(), ClockMHz: g.row(a.ClockMHz).mean(),
		Throttled: g.throttled(),
	}
}

// left is the headroom; what the driver has free where PyTorch's counters are not known.
func (g *gpu) left() line {
	if g.headroom.top() != nil || g.TotalBytes == 0 {
		return g.headroom
	}
	free := line{times: g.used.times}
	for _, used := range g.used.values {
		free.values = append(free.values, float64(g.TotalBytes)-used)
	}
	return free
}

func (g *gpu) least() *float64 { _, left := g.left().best(-1); return left }

// throttled is the share of time that each reason held, of those that did.
func (g *gpu) throttled() map[string]float64 {
	shares := map[string]float64{}
	for _, reason := range runlog.Throttles {
		held := line{times: g.times}
		for _, bits := range g.activity.Throttle {
			if !math.IsNaN(bits) {
				bits = float64(min(int(bits)&reason.Bit, 1))
			}
			held.values = append(held.values, bits)
		}
		s := held.totals()
		if share := ratio(s.integral, s.seconds); share != nil && *share != 0 {
			shares[reason.Name] = *share
		}
	}
	return shares
}

func (h *host) figures() view.HostFigures {
	a := &h.activity
	_, available := h.row(a.HostAvailable).best(-1)
	return view.HostFigures{
		Total: positive(h.TotalBytes), CPUs: h.CPUs, Contained: h.Contained, UsedPeak: h.used.top(), Available: available,
		Tree: h.row(a.TreeRSS).top(), Workers: h.row(a.WorkersRSS).top(), Swap: h.row(a.SwapUsed).top(),
		SharedTotal: positive(h.ShmTotalBytes), SharedPeak: h.row(a.ShmUsed).top(), CPU: h.row(a.CPUShare).mean(), TreeCPU: h.row(a.TreeCPU).mean(),
		BusiestCore: h.row(a.BusiestCore).mean(), DiskRead: h.row(a.DiskRead).mean(), DiskWritten: h.row(a.DiskWritten).mean(),
		NetReceived: h.row(a.Received).mean(), NetSent: h.row(a.Sent).mean(),
	}
}

// stepFigures are of the leading run logs; audio of all ranks.
func (t *timeline) stepFigures() view.StepFigures {
	f := view.StepFigures{LongestClip: t.steps(runlog.KindTrain, func(s *runlog.StepSeries, i int) float64 { return s.LongestS[i] }).top()}
	f.Train, f.TrainS = t.count(runlog.KindTrain), t.steps(runlog.KindTrain, spent).sum()
	f.Evaluation, f.EvaluationS = t.count(runlog.KindEvaluation), t.steps(runlog.KindEvaluation, spent).sum()
	f.Checkpoint, f.CheckpointS = t.count(runlog.KindCheckpoint), t.steps(runlog.KindCheckpoint, spent).sum()
	for _, s := range t.leads {
		for i, n := range s.RunLog.Steps.Number {
			if s.RunLog.Steps.Kind[i] == runlog.KindTrain {
				first, last := min(n, *cmp.Or(f.First, &n)), max(n, *cmp.Or(f.Last, &n))
				f.First, f.Last = &first, &last
			}
		}
	}
	audio := t.ofRanks(func(s *runlog.StepSeries) (a, b runlog.Column) { return s.AudioS, s.AudioS })
	padded := t.ofRanks(func(s *runlog.StepSeries) (a, b runlog.Column) { return s.PaddedS, s.PaddedS })
	paired := t.ofRanks(func(s *runlog.StepSeries) (a, b runlog.Column) { return s.AudioS, s.PaddedS })
	waited := t.ofRanks(func(s *runlog.StepSeries) (a, b runlog.Column) { return s.WaitedS, s.SpentS })
	waiting := t.ofRanks(func(s *runlog.StepSeries) (a, b runlog.Column) { return s.SpentS, s.WaitedS })
	if f.TrainS != nil {
		f.StepsPerS = ratio(float64(f.Train), *f.TrainS)
		if audio.n > 0 {
			f.AudioRate = ratio(audio.sum, *f.TrainS)
		}
	}
	needed := t.ofRanks(func(s *runlog.StepSeries) (a, b runlog.Column) { return s.ArithmeticS, s.SpentS })
	taken := t.ofRanks(func(s *runlog.StepSeries) (a, b runlog.Column) { return s.SpentS, s.ArithmeticS })
	f.Padding, f.Waited, f.MFU = ratio(padded.sum-paired.sum, padded.sum), ratio(waited.sum, waiting.sum), ratio(needed.sum, taken.sum)
	return f
}

// ofRanks are the totals of a column over the training steps of every rank, of those that know another one, too.
func (t *timeline) ofRanks(columns func(*runlog.StepSeries) (of, beside runlog.Column)) totals {
	var found line
	for _, s := range t.sources {
		of, beside := columns(&s.RunLog.Steps)
		for i, kind := range s.RunLog.Steps.Kind {
			if kind == runlog.KindTrain && !math.IsNaN(beside[i]) {
				found.add([]float64{0}, of[i:i+1])
			}
		}
	}
	return found.totals()
}

// count is of steps; those on several GPUs have an entry for each, and times in the first alone.
func (t *timeline) count(kind string) (count int) {
	for _, s := range t.leads {
		all, timed, known := 0, 0, false
		for i, k := range s.RunLog.Steps.Kind {
			if k != kind {
				continue
			}
			all += s.RunLog.Steps.Covers[i]
			if !math.IsNaN(s.RunLog.Steps.SpentS[i]) {
				timed, known = timed+s.RunLog.Steps.Covers[i], true
			}
		}
		if !known {
			timed = all
		}
		count += timed
	}
	return count
}
