package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

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
	leftAt, headroom := g.left().best(-1)
	power := g.row(a.PowerW).totals()
	return view.GPUFigures{
		Label: g.label, Name: g.Name, Total: positive(g.TotalBytes), UsedMean: g.used.mean(),
		UsedPeak: peak, UsedPeakAt: peakAt,
		Allocated: g.allocated.top(), Reserved: g.reserved.top(), Headroom: headroom,
		HeadroomAt: leftAt, Others: g.row(a.Others).top(),
		Utilization: g.row(a.Utilization).mean(), MemoryBusy: g.row(a.MemoryBusy).mean(),
		SMActive: g.row(a.SMActive).mean(), TensorActive: g.row(a.TensorActive).mean(),
		Power:    g.row(a.PowerW).mean(),
		EnergyWh: when(power.n > 0, power.integral/3600), Hottest: g.row(a.Temperature).top(),
		ClockMHz:  g.row(a.ClockMHz).mean(),
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

func (g *gpu) least() *float64 { _, headroom := g.left().best(-1); return headroom }

// throttled is the share of time that each reason held, of those that did.
func (g *gpu) throttled() map[string]float64 {
	shares := map[string]float64{}
	for _, reason := range runlog.Throttles {
		active := line{times: g.times}
		for _, bits := range g.activity.Throttle {
			if !math.IsNaN(bits) {
				bits = float64(min(int(bits)&reason.Bit, 1))
			}
			active.values = append(active.values, bits)
		}
		s := active.totals()
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
		Total: positive(h.TotalBytes), CPUs: h.CPUs, Contained: h.Contained, UsedPeak: h.used.top(),
		Available: available,
		Tree:      h.row(a.TreeRSS).top(), Workers: h.row(a.WorkersRSS).top(),
		Swap:        h.row(a.SwapUsed).top(),
		SharedTotal: positive(h.ShmTotalBytes), SharedPeak: h.row(a.ShmUsed).top(),
		CPU: h.row(a.CPUShare).mean(), TreeCPU: h.row(a.TreeCPU).mean(),
		BusiestCore: h.row(a.BusiestCore).mean(), DiskRead: h.row(a.DiskRead).mean(),
		DiskWritten: h.row(a.DiskWritten).mean(),
		NetReceived: h.row(a.Received).mean(), NetSent: h.row(a.Sent).mean(),
	}
}

// stepFigures are of the leading run logs; audio of all ranks.
func (t *timeline) stepFigures() view.StepFigures {
	f := view.StepFigures{LongestClip: t.steps(runlog.KindTrain, at(longestS)).top()}
	f.Train, f.TrainS = t.count(runlog.KindTrain), t.steps(runlog.KindTrain, at(spentS)).sum()
	f.Evaluation, f.EvaluationS =
		t.count(runlog.KindEvaluation), t.steps(runlog.KindEvaluation, at(spentS)).sum()
	f.Checkpoint, f.CheckpointS =
		t.count(runlog.KindCheckpoint), t.steps(runlog.KindCheckpoint, at(spentS)).sum()
	for _, s := range t.leads {
		for i, n := range s.RunLog.Steps.Number {
			if s.RunLog.Steps.Kind[i] == runlog.KindTrain {
				first, last := min(n, *cmp.Or(f.First, &n)), max(n, *cmp.Or(f.Last, &n))
				f.First, f.Last = &first, &last
			}
		}
	}
	audio, padded := t.ofRanks(audioS, audioS), t.ofRanks(paddedS, paddedS)
	if f.TrainS != nil {
		f.StepsPerS = ratio(float64(f.Train), *f.TrainS)
		if audio.n > 0 {
			f.AudioRate = ratio(audio.sum, *f.TrainS)
		}
	}
	share := func(part, whole column) *float64 {
		return ratio(t.ofRanks(part, whole).sum, t.ofRanks(whole, part).sum)
	}
	f.Padding = ratio(padded.sum-t.ofRanks(audioS, paddedS).sum, padded.sum)
	f.Waited, f.MFU = share(waitedS, spentS), share(arithmeticS, spentS)
	return f
}

// ofRanks are the totals of a column over the training steps of every rank, of those that know
// another one, too.
func (t *timeline) ofRanks(column, other column) totals {
	var joined line
	for _, s := range t.sources {
		values, beside := column(&s.RunLog.Steps), other(&s.RunLog.Steps)
		for i, kind := range s.RunLog.Steps.Kind {
			if kind == runlog.KindTrain && !math.IsNaN(beside[i]) {
				joined.addPoint(0, values[i])
			}
		}
	}
	return joined.totals()
}

// count is of steps; those on several GPUs have an entry for each, and times in the first alone.
func (t *timeline) count(kind string) (count int) {
	for _, s := range t.leads {
		all, timed, hasTimes := 0, 0, false
		for i, k := range s.RunLog.Steps.Kind {
			if k != kind {
				continue
			}
			all += s.RunLog.Steps.Covers[i]
			if !math.IsNaN(s.RunLog.Steps.SpentS[i]) {
				timed, hasTimes = timed+s.RunLog.Steps.Covers[i], true
			}
		}
		if !hasTimes {
			timed = all
		}
		count += timed
	}
	return count
}

// Logged is an entry of the Trainer's log_history: "step" and what was logged at it, such as "loss"
// and "eval_wer". Null is not known.
type Logged map[string]*float64

const (
	stepName      = "step"
	evalPrefix    = "eval_"
	largestLogged = 1e30 // beyond it a figure is taken for one that is not known
)

// metric is a figure that the Trainer logs: by its own name, and as eval_NAME or eval_SET_NAME for
// evaluations.
type metric struct{ name, title, short, own string }

var (
	metrics = []metric{{"loss", "Loss", "loss", "training"}, {"wer", "WER", "WER", "training"},
		{"cer", "CER", "CER", "training"}}
	learningRate = metric{"learning_rate", "Learning rate", "learning rate", "learning rate"}
)

func (l Logged) figure(name string) float64 {
	if v := l[name]; v != nil && math.Abs(*v) <= largestLogged {
		return *v
	}
	return math.NaN()
}

// names are those under which a metric was logged: its own first.
func (m metric) names(history []Logged) (names []string) {
	for _, entry := range history {
		for name := range entry {
			evaluation := strings.HasPrefix(name, evalPrefix) && strings.HasSuffix(name, "_"+m.name)
			if (name == m.name || evaluation) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return names
}

// source is what a name is of: "training", "evaluation", or "evaluation SET".
func (m metric) source(name string) string {
	if name == m.name {
		return m.own
	}
	set := strings.Trim(strings.TrimSuffix(strings.TrimPrefix(name, evalPrefix), m.name), "_")
	return strings.TrimSpace("evaluation " + set)
}

// bySteps are what was logged under a name, with steps for times; not a number where it is not
// known.
func bySteps(history []Logged, name string) (values line) {
	for _, entry := range history {
		step := entry.figure(stepName)
		if _, has := entry[name]; has && !math.IsNaN(step) {
			values.addPoint(step, entry.figure(name))
		}
	}
	return values
}

// curves are of all names of a metric: its own has the first colour, evaluations have the others.
func (m metric) curves(history []Logged, place func(line) line,
	colours ...string) (curves []curve) {
	for _, name := range m.names(history) {
		colour := colours[0]
		if name != m.name {
			colour, colours = colours[1], append(colours[:1:1], append(colours[2:], colours[1])...)
		}
		curves = append(curves, curve{name: m.source(name), line: place(bySteps(history, name)),
			colour: colour, mean: true})
	}
	return curves
}

// moments places what has steps for times where these had been trained first; what was logged
// before the first step, at that. Steps that no monitor saw are left out.
func (t *timeline) moments(l line) (values line) {
	steps, i := t.steps(runlog.KindTrain, number), 0
	for k, step := range l.times {
		for i < len(steps.values) && steps.values[i] < step {
			i++
		}
		if i < len(steps.values) && step >= steps.values[0]-1 {
			values.addPoint(steps.times[i], l.values[k])
		}
	}
	return values
}

func (c *charts) addLogged(t *timeline, history []Logged) {
	for _, m := range append(slices.Clone(metrics), learningRate) {
		c.add(view.RunPanel{Title: m.title, Group: view.GroupTraining}, 1,
			m.curves(history, t.moments, blue, orange, green, purple, grey)...)
	}
}
