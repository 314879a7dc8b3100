package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// CompareRequest asks for a comparison of two runs.
type CompareRequest struct {
	A Compared `json:"a"`
	B Compared `json:"b"`
}

// Compared is one of the two runs.
type Compared struct {
	Name     string         `json:"name"`
	Sources  []Source       `json:"sources"`
	Settings diagnosis.Run  `json:"settings"`
	Guard    []GuardEvent   `json:"guard"`   // null where the guard kept no record
	History  []Logged       `json:"history"` // log_history of trainer_state.json
	Config   map[string]any `json:"config"`  // training_config.json; null where there is none
	Notes    []string       `json:"notes"`   // files that cannot be read
}

// side is one run of a comparison.
type side struct {
	Compared
	*timeline
	all     view.RunFigures // of the whole run
	figures view.RunFigures // of the steps that are compared
	errors  []GuardEvent    // in the steps that are compared
}

// Compare returns the figures of two runs over the steps that both made, and the settings that
// differ. Runs without a common step are compared whole. Errors: Corrupt for a run log that
// contradicts itself, InvalidArgument for a run without run logs.
func Compare(r CompareRequest) (comparison view.RunComparison, err error) {
	a, errA := newSide(r.A)
	b, errB := newSide(r.B)
	if err := cmp.Or(errA, errB); err != nil {
		return comparison, err
	}
	comparison = view.RunComparison{A: a.summary(), B: b.summary(),
		Settings: differingSettings(a.Config, b.Config)}
	if comparison.A.Last != nil && comparison.B.Last != nil {
		first, last := max(*comparison.A.First, *comparison.B.First),
			min(*comparison.A.Last, *comparison.B.Last)
		if first <= last {
			comparison.First, comparison.Last = &first, &last
		}
		if first <= last && (a.hasMore(first, last) || b.hasMore(first, last)) {
			a.cut(first, last)
			b.cut(first, last)
		}
	}
	comparison.Figures = append(comparedFigures(a, b), comparedLogs(a.History, b.History)...)
	comparison.Charts = comparedCharts(a, b)
	return comparison, nil
}

func newSide(run Compared) (*side, error) {
	if len(run.Sources) == 0 {
		return nil, fault.New(fault.InvalidArgument, "pass the run logs of its monitors",
			"comparing runs: %q has no run logs", fault.Shorten(run.Name))
	}
	start, err := align(run.Sources)
	if err != nil {
		return nil, err
	}
	s := &side{Compared: run, timeline: newTimeline(run.Sources), errors: run.Guard}
	s.all = s.timeline.figures(float64(start)/1e9, run.Guard)
	s.figures = s.all
	return s, nil
}

func (s *side) summary() view.ComparedRun {
	return view.ComparedRun{Name: s.Name, Headline: s.all.Headline(), First: s.all.Steps.First,
		Last: s.all.Steps.Last, Configured: s.Config != nil, Notes: s.Notes}
}

// hasMore reports whether the run made steps before first or after last.
func (s *side) hasMore(first, last uint64) bool {
	return *s.all.Steps.First != first || *s.all.Steps.Last != last
}

// differingSettings are the settings that differ, by name; none where a run has no configuration.
// Lists and objects, which are the reasons of a plan, and the figures of a plan are left out.
func differingSettings(a, b map[string]any) []view.ComparedSetting {
	settings, either := []view.ComparedSetting{}, maps.Clone(a)
	if a == nil || b == nil {
		return settings
	}
	maps.Copy(either, b)
	for _, name := range slices.Sorted(maps.Keys(either)) {
		if x, y := a[name], b[name]; scalar(x) && scalar(y) && x != y &&
			!slices.Contains(plannedFigures, name) {
			settings = append(settings, view.ComparedSetting{Name: name, A: x, B: y})
		}
	}
	return settings
}

func scalar(value any) bool {
	switch value.(type) {
	case nil, bool, string, float64:
		return true
	}
	return false
}

// plannedFigures are the entries of a configuration that are no settings.
var plannedFigures = []string{"budget_bytes", "model_memory_bytes", "predicted_bytes",
	"predicted_high_bytes"}

// comparedValue is a figure that runs are compared by; units are those of view.ComparedFigure.
type comparedValue struct {
	key, name, unit string
	value           *float64
}

func (s *side) comparable() []comparedValue {
	steps, gpus := s.figures.Steps, s.figures.GPUs
	busy := ofAll(gpus, func(g view.GPUFigures) *float64 { return g.Utilization })
	peaks := ofAll(gpus, func(g view.GPUFigures) *float64 { return g.UsedPeak })
	means := ofAll(gpus, func(g view.GPUFigures) *float64 { return g.UsedMean })
	allocated := ofAll(gpus, func(g view.GPUFigures) *float64 { return g.Allocated })
	ram := ofAll(s.figures.Hosts, func(h view.HostFigures) *float64 { return h.UsedPeak })
	return []comparedValue{
		{"steps_per_s", "steps/s", "", steps.StepsPerS},
		{"clips_per_s", "clips/s", "", s.clipRate()},
		{"audio_rate", "audio s/s", "", steps.AudioRate},
		{"waited", "loader wait", "share", steps.Waited},
		{"padding", "padding", "share", steps.Padding},
		{"utilization", "GPU busy", "share", busy.mean()},
		{"model_flops_utilization", "useful work (MFU)", "share", steps.MFU},
		{"used_peak_bytes", "peak GPU memory", "bytes", peaks.top()},
		{"used_mean_bytes", "mean GPU memory", "bytes", means.mean()},
		{"allocated_peak_bytes", "peak allocated", "bytes", allocated.top()},
		{"host_used_peak_bytes", "peak host RAM", "bytes", ram.top()},
		{"energy_wh", "energy", "Wh", s.figures.EnergyWh},
		{"train_s", "training time", "s", steps.TrainS},
		{"evaluation_s", "evaluation time", "s", steps.EvaluationS},
		{"errors_recovered", "errors recovered", "count",
			when(s.Guard != nil, float64(len(s.errors)))},
	}
}

func comparedFigures(a, b *side) (figures []view.ComparedFigure) {
	others := b.comparable()
	for i, f := range a.comparable() {
		if other := others[i].value; cmp.Or(f.value, other) != nil {
			figures = append(figures, compared(f.key, f.name, f.unit, f.value, other))
		}
	}
	return figures
}

func compared(key, name, unit string, a, b *float64) view.ComparedFigure {
	f := view.ComparedFigure{Key: key, Name: name, Unit: unit, A: a, B: b}
	if a != nil && b != nil {
		f.Ratio = ratio(*b, *a)
	}
	return f
}

// clipRate is clips per second, nil where the settings do not say how many clips a step has.
func (s *side) clipRate() *float64 {
	r, rate := s.Settings, s.figures.Steps.StepsPerS
	if r.PerDeviceBatch == nil || r.Accumulation == nil || r.Devices == nil || rate == nil {
		return nil
	}
	clips := *rate * float64(*r.PerDeviceBatch) * float64(*r.Accumulation) * float64(*r.Devices)
	return &clips
}

// ofAll are the values of a figure of all GPUs or hosts that have it, as a line whose points are
// all at the time 0: its mean is then that of the values, and its top the highest of them.
func ofAll[T any](all []T, figure func(T) *float64) (values line) {
	for _, one := range all {
		if v := figure(one); v != nil {
			values.addPoint(0, *v)
		}
	}
	return values
}

// comparedLogs are losses and error rates at the last step at which both runs logged them, and at
// the end of each run where that is another step.
func comparedLogs(a, b []Logged) (figures []view.ComparedFigure) {
	for _, m := range metrics {
		for _, key := range m.names(slices.Concat(a, b)) {
			x, y := bySteps(a, key).known(), bySteps(b, key).known()
			name := m.source(key) + " " + m.short
			same := -1
			for i, step := range x.times {
				if slices.Contains(y.times, step) {
					same = i
				}
			}
			if same >= 0 {
				k := slices.Index(y.times, x.times[same])
				figures = append(figures, compared(key,
					fmt.Sprintf("%s at step %.0f", name, x.times[same]), "", &x.values[same],
					&y.values[k]))
			}
			if same < 0 || same < len(x.times)-1 || y.times[len(y.times)-1] != x.times[same] {
				figures = append(figures, compared(key+"_last", name+" at the end", "", x.latest(),
					y.latest()))
			}
		}
	}
	return figures
}

func (l line) known() (values line) {
	for i, value := range l.values {
		if !math.IsNaN(value) {
			values.addPoint(l.times[i], value)
		}
	}
	return values
}

func (l line) latest() *float64 {
	if len(l.values) == 0 {
		return nil
	}
	return &l.values[len(l.values)-1]
}

// comparedCharts are charts of what the runs logged, over steps, with the curves of both in one;
// nil where fewer than two steps are known.
func comparedCharts(a, b *side) *view.RunCharts {
	first, last := math.Inf(1), math.Inf(-1)
	for _, s := range []*side{a, b} {
		if s.all.Steps.First != nil {
			first, last = min(first, float64(*s.all.Steps.First)),
				max(last, float64(*s.all.Steps.Last))
		}
	}
	if first >= last {
		return nil
	}
	c := charts{&axis{unit: "optimizer step", low: first, high: last, divisor: 1}, nil}
	for _, m := range metrics {
		var curves []curve
		for _, run := range []struct {
			*side
			colours []string
		}{{a, []string{blue, green}}, {b, []string{orange, purple}}} {
			for _, curve := range m.curves(run.History, func(l line) line {
				return l
			}, run.colours...) {
				curve.name = run.Name + ": " + curve.name
				curves = append(curves, curve)
			}
		}
		c.add(view.RunPanel{Title: m.title, Group: view.GroupTraining}, 1, curves...)
	}
	return &view.RunCharts{By: "steps", Low: first, High: last, Unit: c.unit, Panels: c.panels,
		Spans: []view.Span{}}
}
