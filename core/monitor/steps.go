package monitor

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	// maxSteps is the fixed length of the series of steps.
	maxSteps = 4096
	// rareSteps is how many entries of a kind on one GPU are kept whole however long the run. There
	// are at most 3 kinds on 17 GPUs (none is one), so these alone never fill the table.
	rareSteps = 32
)

// stepEntry is one entry of the series: one step, or several with the highest sizes, the sum of the
// times and the largest batch.
type stepEntry struct {
	runlog.Step
	covers   int
	headroom float64 // headroom, the lowest
}

// group is what entries must have in common to become one.
type group struct {
	kind string
	gpu  int
}

func (k *stepEntry) group() group { return group{k.Kind, k.GPU} }

// merge adds a later entry of the same group to this one.
func (k *stepEntry) merge(later *stepEntry) {
	k.Number, k.AtS = later.Number, later.AtS
	k.covers += later.covers
	k.headroom = either(k.headroom, later.headroom, math.Min)
	sum := func(a, b float64) float64 { return a + b }
	k.SpentS, k.WaitedS = either(k.SpentS, later.SpentS, sum), either(k.WaitedS, later.WaitedS, sum)
	k.ArithmeticS = either(k.ArithmeticS, later.ArithmeticS, sum)
	if later.batch() > k.batch() || math.IsNaN(k.batch()) {
		k.AudioS, k.PaddedS, k.LongestS = later.AudioS, later.PaddedS, later.LongestS
	}
	k.Allocated, k.Reserved = either(k.Allocated, later.Allocated, math.Max),
		either(k.Reserved, later.Reserved, math.Max)
	k.PeakAllocated = either(k.PeakAllocated, later.PeakAllocated, math.Max)
	k.PeakReserved = either(k.PeakReserved, later.PeakReserved, math.Max)
}

// batch is how large the batch was, in seconds of audio.
func (k *stepEntry) batch() float64 {
	if math.IsNaN(k.PaddedS) {
		return k.AudioS
	}
	return k.PaddedS
}

// either joins two values of which one may not be known.
func either(a, b float64, join func(a, b float64) float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return join(a, b)
}

// stepTable is the series of steps, of fixed size.
type stepTable struct {
	lock    sync.Mutex
	entries []stepEntry
	width   int // steps that an entry may cover, 1 as long as all fit
}

func newStepTable() *stepTable {
	return &stepTable{entries: make([]stepEntry, 0, maxSteps), width: 1}
}

// add takes one step, as a rule without allocating.
func (l *stepTable) add(s *runlog.Step, room float64) {
	l.lock.Lock()
	defer l.lock.Unlock()
	next := stepEntry{Step: *s, covers: 1, headroom: room}
	if n := len(l.entries); n > 0 && l.entries[n-1].group() == next.group() &&
		l.entries[n-1].covers < l.width {
		l.entries[n-1].merge(&next)
		return
	}
	if len(l.entries) == maxSteps {
		l.makeRoom()
	}
	l.entries = append(l.entries, next)
}

// makeRoom joins entries that arrived by turns and so one by one; when that is not enough, all
// cover twice as many steps.
func (l *stepTable) makeRoom() {
	for l.thin(); len(l.entries) > maxSteps*3/4; l.thin() {
		l.width *= 2
	}
}

// thin merges neighbours of the frequent groups into entries of at most width steps.
func (l *stepTable) thin() {
	counts := map[group]int{}
	for i := range l.entries {
		counts[l.entries[i].group()]++
	}
	open := map[group]int{} // the place in kept of an entry that may take another
	entries := l.entries[:0]
	for _, next := range l.entries {
		key := next.group()
		if index, is := open[key]; is && counts[key] > rareSteps && entries[index].covers+
			next.covers <= l.width {
			entries[index].merge(&next)
			continue
		}
		open[key] = len(entries)
		entries = append(entries, next)
	}
	slices.SortStableFunc(entries, func(a, b stepEntry) int { return cmp.Compare(a.AtS, b.AtS) })
	l.entries = entries
}

// copy returns the steps as a run log has them.
func (l *stepTable) copy() runlog.StepSeries {
	l.lock.Lock()
	defer l.lock.Unlock()
	out := runlog.StepSeries{Number: []uint64{}, TimesS: []float64{}, Kind: []string{},
		Covers: []int{}, GPU: []int{}}
	columns := out.Columns()
	for i := range l.entries {
		k := &l.entries[i]
		out.Number, out.TimesS, out.Kind =
			append(out.Number, k.Number), append(out.TimesS, k.AtS), append(out.Kind, k.Kind)
		out.Covers, out.GPU = append(out.Covers, k.covers), append(out.GPU, k.GPU)
		for c, value := range []float64{k.SpentS, k.WaitedS, k.AudioS, k.PaddedS, k.LongestS,
			k.ArithmeticS, k.Allocated, k.Reserved, k.PeakAllocated, k.PeakReserved, k.headroom} {
			*columns[c] = append(*columns[c], value)
		}
	}
	return out
}

// freshness is how old a sample may be, in seconds, for the driver to be asked beside the sampler:
// when samples stay away, the driver may hang, and a training step must not.
const freshness = 1

// Step takes one step as the training tells of it, with its time from now, 0 or less; the driver's
// figures are filled in here. A GPU outside the range is none. After Stop it does nothing.
func (m *Monitor) Step(s runlog.Step) {
	if m.stopped() {
		return
	}
	if s.GPU < 0 || s.GPU >= m.gpuCount {
		s.GPU = -1
	}
	s.AtS, s.DriverFree, s.Total = m.now()+s.AtS, math.NaN(), math.NaN()
	room := math.NaN()
	if s.GPU >= 0 {
		room = m.learn(&s)
	}
	m.steps.add(&s, room)
	if m.forecast != nil {
		m.forecast.Step(s)
	}
}

// learn takes PyTorch's counters of a step, fills in the driver's and gives the headroom. When
// PyTorch holds more than at the step before, a sample may be from before that: only then the
// driver is asked here.
func (m *Monitor) learn(s *runlog.Step) (room float64) {
	counted := s.Allocated >= 0 && s.Reserved >= 0 // neither NaN
	m.lock.Lock()
	g := &m.stats.GPU[s.GPU]
	grown := counted && g.Valid && s.Reserved > float64(g.Reserved) &&
		m.clock.Wall().UnixNano()-m.stats.UnixNanos < freshness*1e9
	m.lock.Unlock()
	var used, total, free uint64
	if grown {
		var err error
		used, total, free, err = m.gpu.Memory(s.GPU)
		grown = err == nil
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if grown && g.Valid {
		g.refresh(used, total, free)
	}
	if counted {
		g.learn(uint64(s.Allocated), uint64(s.Reserved))
	}
	if !g.Valid {
		return math.NaN()
	}
	s.DriverFree, s.Total = float64(g.Free), float64(g.Total)
	return float64(g.headroom())
}
