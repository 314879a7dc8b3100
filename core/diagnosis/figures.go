package diagnosis

import (
	"cmp"
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	leastRows  = 10 // slow readings that shares are computed from
	leastSteps = 5  // training steps likewise
)

// figures are a run log in numbers. NaN: not seen, or seen too little.
type figures struct {
	log  *runlog.Log
	gpus []card // those that the training used

	steps       int // training steps
	first, last uint64
	spanS       float64 // from the first mark to the last
	trainS      float64 // told in all
	waited      float64 // share of the training steps' time
	saving      float64 // share of the time of all marks
	evaluating  float64
	outside     float64 // share of the span that no mark accounts for
	pace        float64 // seconds of a training step
	minHeadroom float64 // least headroom at a peak, as a share of the card
	cpu         float64 // mean share
	own         float64 // likewise, of this training
	available   float64 // least, as a share of the RAM
	swapRise    float64 // bytes
	shm         float64 // most, as a share
	disk        float64 // bytes/s read, mean
	events      map[string]int
}

// card is one GPU in numbers.
type card struct {
	index          int
	busy, memory   float64 // mean utilisation; most memory used, as a share
	torch          float64 // highest peak of PyTorch, as a share
	powerW, limitW float64
	temperature    float64 // highest
	clock          float64 // mean, as a share of the highest
	// shares of the readings with that reason to hold back the clock
	hot, braked, capped, set float64
	pcie                     float64 // bytes/s both ways, mean
	others, othersShare      float64 // most
}

func measure(s *runlog.Log) *figures {
	f := &figures{log: s, events: map[string]int{}}
	for _, e := range s.Events {
		f.events[e.Kind]++
	}
	f.measureSteps(&s.Steps)
	f.measureHost(s)
	for i := range s.GPUs {
		if c := measureGPU(s, i); c.used(s) {
			f.gpus = append(f.gpus, c)
		}
	}
	return f
}

func (f *figures) measureSteps(m *runlog.StepSeries) {
	spent := map[string]float64{}
	waited, waitedOf, untold := 0.0, 0.0, false
	for i, kind := range m.Kind {
		took := m.SpentS[i]
		if took >= 0 {
			spent[kind] += took
		} else {
			untold = true
		}
		if kind != runlog.KindTrain {
			continue
		}
		f.steps += max(1, m.Covers[i])
		if wait := m.WaitedS[i]; wait >= 0 && took > 0 {
			waited, waitedOf = waited+min(wait, took), waitedOf+took
		}
		f.first, f.last = cmp.Or(f.first, m.Number[i]), m.Number[i]
	}
	all := spent[runlog.KindTrain] + spent[runlog.KindEvaluation] + spent[runlog.KindCheckpoint]
	f.trainS = spent[runlog.KindTrain]
	f.waited, f.saving, f.evaluating = share(waited, waitedOf),
		share(spent[runlog.KindCheckpoint], all), share(spent[runlog.KindEvaluation], all)
	f.pace, f.outside = share(f.trainS, float64(f.steps)), math.NaN()
	if n := len(m.TimesS); n > 0 {
		f.spanS = max(0, m.TimesS[n-1]-m.TimesS[0])
		if !untold {
			f.outside = 1 - share(all-max(0, m.SpentS[0]), f.spanS)
		}
	}
	if f.steps < leastSteps {
		f.waited, f.saving, f.evaluating, f.outside, f.pace =
			math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()
	}
	var free runlog.Column
	for i, gpu := range m.GPU {
		if gpu >= 0 && gpu < len(f.log.GPUs) {
			free = append(free, share(m.HeadroomAtPeak(i), float64(f.log.GPUs[gpu].TotalBytes)))
		}
	}
	f.minHeadroom = lowest(free)
}

func (f *figures) measureHost(s *runlog.Log) {
	a, h := &s.Activity, s.Host
	f.cpu, f.own, f.disk = mean(a.CPUShare), mean(a.TreeCPU), mean(a.DiskRead)
	f.available = share(lowest(a.HostAvailable), float64(h.TotalBytes))
	f.swapRise = highest(a.SwapUsed) - lowest(a.SwapUsed)
	f.shm = share(highest(a.ShmUsed), float64(h.ShmTotalBytes))
}

func measureGPU(s *runlog.Log, i int) card {
	g, a, total := s.GPUs[i], &s.Activity.GPUs[i], float64(s.GPUs[i].TotalBytes)
	c := card{index: i, memory: share(highest(s.Memory.GPUUsed[i]), total),
		limitW: g.PowerLimitW, busy: mean(a.Utilization), powerW: mean(a.PowerW),
		temperature: highest(a.Temperature), clock: share(mean(a.ClockMHz), g.MaxClockMHz),
		pcie: mean(a.PCIeIn) + mean(a.PCIeOut), others: highest(a.Others),
		hot:    mean(bits(a.Throttle, runlog.ThrottleHeat)),
		braked: mean(bits(a.Throttle, runlog.ThrottleBrake)),
		capped: mean(bits(a.Throttle, runlog.ThrottlePower)),
		set:    mean(bits(a.Throttle, runlog.ThrottleSetting))}
	c.othersShare = share(c.others, total)
	var peaks runlog.Column
	for j, gpu := range s.Steps.GPU {
		if gpu == i {
			peaks = append(peaks, s.Steps.PeakAllocated[j])
		}
	}
	c.torch = share(highest(peaks), total)
	return c
}

// used reports whether the training ran on a card: steps name it, or it was busy.
func (c card) used(s *runlog.Log) bool {
	for _, g := range s.Steps.GPU {
		if g >= 0 {
			return !math.IsNaN(c.torch)
		}
	}
	return c.busy > 0.02 || c.memory > 0.05
}

// bits turns reasons into 1 where one of them holds, and 0.
func bits(column runlog.Column, bit int) runlog.Column {
	out := make(runlog.Column, len(column))
	for i, value := range column {
		switch {
		case !(value >= 0 && value < 1<<32):
			out[i] = math.NaN()
		case int(value)&bit != 0:
			out[i] = 1
		}
	}
	return out
}

func finite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

// share is NaN of nothing.
func share(part, total float64) float64 {
	if !(total > 0) || !finite(part) {
		return math.NaN()
	}
	return part / total
}

func mean(column runlog.Column) float64 { return meanOf(column, leastRows) }

// meanOf is the mean of the known values, NaN of fewer than least.
func meanOf(column runlog.Column, least float64) float64 {
	sum, n := 0.0, 0.0
	for _, value := range column {
		if finite(value) {
			sum, n = sum+value, n+1
		}
	}
	if n < least {
		return math.NaN()
	}
	return share(sum, n)
}

func highest(column runlog.Column) float64 {
	top := math.NaN()
	for _, value := range column {
		if finite(value) && !(value <= top) {
			top = value
		}
	}
	return top
}

func lowest(column runlog.Column) float64 {
	bottom := math.NaN()
	for _, value := range column {
		if finite(value) && !(value >= bottom) {
			bottom = value
		}
	}
	return bottom
}

// over describes which steps, or what time, a figure covers.
func (f *figures) over() string {
	if f.steps > 1 {
		return fmt.Sprintf("over steps %d to %d (%s)", f.first, f.last, units.Duration(f.spanS))
	}
	return "over " + units.Duration(f.log.DurationS)
}
