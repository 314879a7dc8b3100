package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// timeline is the run logs of a run's monitors: those of ranks and nodes are side by side, those of
// restarts one after another. Times are seconds from the beginning of the earliest.
type timeline struct {
	sources  []*Source
	duration float64
	// run logs that follow one another, of those at one time the one that knows steps and the first
	// by name
	leads  []*Source
	hosts  []*host
	gpus   []*gpu // every GPU once, also where the monitors of several ranks saw it
	labels map[place]string
}

// place is a GPU by its number in a run log.
type place struct {
	*Source
	gpu int
}

// host is a machine, told apart by its GPUs, with the series of the run logs that follow one
// another.
type host struct {
	runlog.Host
	name     string
	used     line
	times    []float64
	activity runlog.ActivitySeries
}

// gpu is a GPU with its series, those of PyTorch by the steps of all ranks.
type gpu struct {
	runlog.GPU
	label                         string
	used                          line
	times                         []float64
	activity                      runlog.GPUSeries
	allocated, reserved, headroom line // of PyTorch at the peak of a step
}

func newTimeline(sources []Source) *timeline {
	t := &timeline{labels: map[place]string{}}
	var places []place
	for i := range sources {
		s := &sources[i]
		t.sources, t.duration = append(t.sources, s), max(t.duration, s.end())
		for g := range s.RunLog.GPUs {
			places = append(places, place{s, g})
		}
	}
	t.leads = chain(t.sources)
	for _, logs := range view.Grouped(t.sources, (*Source).uuids) {
		t.hosts = append(t.hosts, newHost(chain(logs)))
	}
	for _, group := range view.Grouped(places, place.uuid) {
		t.gpus = append(t.gpus, t.newGPU(group))
	}
	return t
}

func (s *Source) end() float64 { return s.offset + s.RunLog.DurationS }

func (s *Source) uuids() string {
	var uuids []string
	for _, g := range s.RunLog.GPUs {
		uuids = append(uuids, g.UUID)
	}
	return fmt.Sprintf("%q", uuids)
}

func (p place) uuid() string {
	return cmp.Or(p.RunLog.GPUs[p.gpu].UUID, fmt.Sprintf("%q %d", p.Name, p.gpu))
}

// chain are those that do not overlap.
func chain(sources []*Source) (ordered []*Source) {
	stepless := func(s *Source) int { return 1 - min(1, len(s.RunLog.Steps.Number)) }
	order := slices.SortedStableFunc(slices.Values(sources), func(a, b *Source) int {
		return cmp.Or(stepless(a)-stepless(b), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.offset, b.offset))
	})
	for _, s := range order {
		if !slices.ContainsFunc(ordered, func(other *Source) bool {
			return s.end() > other.offset && s.offset < other.end()
		}) {
			ordered = append(ordered, s)
		}
	}
	slices.SortStableFunc(ordered, func(a, b *Source) int {
		return cmp.Compare(a.offset, b.offset)
	})
	return ordered
}

// moved are times of the run log as times of the run.
func (s *Source) moved(times []float64) []float64 {
	moved := slices.Clone(times)
	for i := range moved {
		moved[i] += s.offset
	}
	return moved
}

// join adds the columns of a series to those of the series before it.
func join(to, from []*runlog.Column) {
	for i, column := range to {
		*column = append(*column, *from[i]...)
	}
}

func newHost(logs []*Source) *host {
	h := &host{Host: logs[0].RunLog.Host, name: logs[0].Name}
	for _, s := range logs {
		h.used.add(s.moved(s.RunLog.Memory.TimesS), s.RunLog.Memory.HostUsed)
		h.times = append(h.times, s.moved(s.RunLog.Activity.TimesS)...)
		join(h.activity.Columns(), s.RunLog.Activity.Columns())
	}
	return h
}

func (t *timeline) newGPU(places []place) *gpu {
	numbers, logs := map[*Source]int{}, []*Source(nil)
	for _, p := range places {
		numbers[p.Source], logs = p.gpu, append(logs, p.Source)
	}
	logs = chain(logs)
	g := &gpu{GPU: logs[0].RunLog.GPUs[numbers[logs[0]]],
		label: fmt.Sprintf("GPU %d", numbers[logs[0]])}
	if len(t.hosts) > 1 {
		g.label = strings.TrimSpace(logs[0].Name + " " + g.label)
	}
	for _, s := range logs {
		g.used.add(s.moved(s.RunLog.Memory.TimesS), s.RunLog.Memory.GPUUsed[numbers[s]])
		g.times = append(g.times, s.moved(s.RunLog.Activity.TimesS)...)
		join(g.activity.Columns(), s.RunLog.Activity.GPUs[numbers[s]].Columns())
	}
	for _, p := range places {
		t.labels[p] = g.label
	}
	g.addSteps(places)
	return g
}

// label is that of a GPU that a run log calls gpu, "" for the host.
func (t *timeline) label(s *Source, gpu int) string {
	if gpu < 0 {
		return ""
	}
	return cmp.Or(t.labels[place{s, gpu}], fmt.Sprintf("GPU %d", gpu))
}

func (g *gpu) addSteps(places []place) {
	type point struct{ at, allocated, reserved, headroom float64 }
	var points []point
	for _, p := range places {
		steps := &p.RunLog.Steps
		for i, number := range steps.GPU {
			if number == p.gpu {
				points = append(points, point{steps.TimesS[i] + p.offset, steps.PeakAllocated[i],
					steps.PeakReserved[i], steps.HeadroomAtPeak(i)})
			}
		}
	}
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	for _, p := range points {
		g.allocated.addPoint(p.at, p.allocated)
		g.reserved.addPoint(p.at, p.reserved)
		g.headroom.addPoint(p.at, p.headroom)
	}
}

// steps is something of each step of a kind, of the leading run logs.
func (t *timeline) steps(
	kind string, value func(steps *runlog.StepSeries, i int) float64,
) (values line) {
	for _, s := range t.leads {
		steps := &s.RunLog.Steps
		for i, k := range steps.Kind {
			if k == kind {
				values.addPoint(steps.TimesS[i]+s.offset, value(steps, i))
			}
		}
	}
	return values
}

func number(steps *runlog.StepSeries, i int) float64 { return float64(steps.Number[i]) }

// column is one of a series of steps.
type column func(*runlog.StepSeries) runlog.Column

func spentS(s *runlog.StepSeries) runlog.Column      { return s.SpentS }
func waitedS(s *runlog.StepSeries) runlog.Column     { return s.WaitedS }
func audioS(s *runlog.StepSeries) runlog.Column      { return s.AudioS }
func paddedS(s *runlog.StepSeries) runlog.Column     { return s.PaddedS }
func longestS(s *runlog.StepSeries) runlog.Column    { return s.LongestS }
func arithmeticS(s *runlog.StepSeries) runlog.Column { return s.ArithmeticS }

// at is the value of a column for one step.
func at(c column) func(*runlog.StepSeries, int) float64 {
	return func(s *runlog.StepSeries, i int) float64 { return c(s)[i] }
}
