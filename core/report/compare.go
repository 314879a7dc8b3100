package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// CompareRequest asks for two runs beside each other.
type CompareRequest struct {
	A Compared `json:"a"`
	B Compared `json:"b"`
}

// Compared is one of two runs.
type Compared struct {
	Name     string         `json:"name"`
	Sources  []Source       `json:"sources"`
	Settings diagnosis.Run  `json:"settings"`
	Guard    []GuardEvent   `json:"guard"`   // null where the guard kept no record
	History  []Logged       `json:"history"` // log_history of trainer_state.json
	Config   map[string]any `json:"config"`  // training_config.json; null where there is none
	Notes    []string       `json:"notes"`   // files that cannot be read
}

// side is a run of a comparison, on its timeline.
type side struct {
	Compared
	*timeline
	all     view.RunFigures
	figures view.RunFigures // of the steps that are compared
	errors  []GuardEvent    // likewise
}

// Compare returns the figures of two runs over the steps that both made, and the settings that
// differ. Errors: Corrupt, InvalidArgument.
func Compare(r CompareRequest) (comparison view.RunComparison, err error) {
	a, err := newSide(r.A)
	if err != nil {
		return comparison, err
	}
	b, err := newSide(r.B)
	if err != nil {
		return comparison, err
	}
	comparison = view.RunComparison{A: a.told(), B: b.told(), Settings: changed(a.Config, b.Config)}
	if comparison.A.Last != nil && comparison.B.Last != nil {
		first, last := max(*comparison.A.First, *comparison.B.First),
			min(*comparison.A.Last, *comparison.B.Last)
		if first <= last {
			comparison.First, comparison.Last = &first, &last
		}
		if first <= last && (a.partly(first, last) || b.partly(first, last)) {
			a.cut(first, last)
			b.cut(first, last)
		}
	}
	comparison.Figures = append(comparedFigures(a, b), comparedLogs(a.History, b.History)...)
	comparison.Charts = comparedCharts(a, b)
	return comparison, nil
}

func newSide(run Compared) (*side, error) {
	start, err := placed(run.Sources)
	if err != nil {
		return nil, err
	}
	if len(run.Sources) == 0 {
		return nil, fault.New(fault.InvalidArgument, "pass what its monitors saw",
			"comparing runs: %q has no run logs", fault.Shorten(run.Name))
	}
	s := &side{Compared: run, timeline: newTimeline(run.Sources), errors: run.Guard}
	s.all = s.timeline.figures(float64(start)/1e9, run.Guard)
	s.figures = s.all
	return s, nil
}

func (s *side) told() view.ComparedRun {
	return view.ComparedRun{Name: s.Name, Headline: s.all.Headline(), First: s.all.Steps.First,
		Last: s.all.Steps.Last, Configured: s.Config != nil, Notes: s.Notes}
}

// partly reports whether the run made other steps, too.
func (s *side) partly(first, last uint64) bool {
	return *s.all.Steps.First != first || *s.all.Steps.Last != last
}

// changed are the settings that differ, by name, without the reasons of a plan, which are lists and
// objects, and its figures.
func changed(a, b map[string]any) []view.ComparedSetting {
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

var plannedFigures = []string{"budget_bytes", "model_memory_bytes", "predicted_bytes",
	"predicted_high_bytes"}

func scalar(value any) bool {
	switch value.(type) {
	case nil, bool, string, float64:
		return true
	}
	return false
}

// comparison are the figures that two runs are compared by; units are those of view.ComparedFigure.
var comparison = []struct {
	key, name, unit string
	of              func(s *side) *float64
}{
	{"steps_per_s", "steps/s", "", func(s *side) *float64 { return s.figures.Steps.StepsPerS }},
	{"clips_per_s", "clips/s", "", (*side).clipRate},
	{"audio_rate", "audio s/s", "", func(s *side) *float64 { return s.figures.Steps.AudioRate }},
	{"waited", "loader wait", "share", func(s *side) *float64 { return s.figures.Steps.Waited }},
	{"padding", "padding", "share", func(s *side) *float64 { return s.figures.Steps.Padding }},
	{"utilization", "GPU busy", "share", func(s *side) *float64 {
		return s.gpuMean(func(g view.GPUFigures) *float64 {
			return g.Utilization
		})
	}},
	{"model_flops_utilization", "useful work (MFU)", "share", func(s *side) *float64 {
		return s.figures.Steps.MFU
	}},
	{"used_peak_bytes", "peak GPU memory", "bytes", func(s *side) *float64 {
		return s.gpuMost(func(g view.GPUFigures) *float64 {
			return g.UsedPeak
		})
	}},
	{"used_mean_bytes", "mean GPU memory", "bytes", func(s *side) *float64 {
		return s.gpuMean(func(g view.GPUFigures) *float64 {
			return g.UsedMean
		})
	}},
	{"allocated_peak_bytes", "peak allocated", "bytes", func(s *side) *float64 {
		return s.gpuMost(func(g view.GPUFigures) *float64 {
			return g.Allocated
		})
	}},
	{"host_used_peak_bytes", "peak host RAM", "bytes", (*side).hostPeak},
	{"energy_wh", "energy", "Wh", func(s *side) *float64 { return s.figures.EnergyWh }},
	{"train_s", "training time", "s", func(s *side) *float64 { return s.figures.Steps.TrainS }},
	{"evaluation_s", "evaluation time", "s", func(s *side) *float64 {
		return s.figures.Steps.EvaluationS
	}},
	{"errors_recovered", "errors recovered", "count", func(s *side) *float64 {
		return when(s.Guard != nil, float64(len(s.errors)))
	}},
}

// comparedFigures are those that at least one of the runs knows.
func comparedFigures(a, b *side) (figures []view.ComparedFigure) {
	for _, f := range comparison {
		if x, y := f.of(a), f.of(b); cmp.Or(x, y) != nil {
			figures = append(figures, compared(f.key, f.name, f.unit, x, y))
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

// clipRate is known where the settings tell how many clips a step has.
func (s *side) clipRate() *float64 {
	r, rate := s.Settings, s.figures.Steps.StepsPerS
	if r.PerDeviceBatch == nil || r.Accumulation == nil || r.Devices == nil || rate == nil {
		return nil
	}
	return when(true, *rate*float64(*r.PerDeviceBatch)*float64(*r.Accumulation)*float64(*r.Devices))
}

func (s *side) gpuMean(figure func(view.GPUFigures) *float64) *float64 {
	return s.ofGPUs(figure).mean()
}

func (s *side) gpuMost(figure func(view.GPUFigures) *float64) *float64 {
	return s.ofGPUs(figure).top()
}

// ofGPUs are the figures that are known, as of one moment.
func (s *side) ofGPUs(figure func(view.GPUFigures) *float64) (values line) {
	for _, g := range s.figures.GPUs {
		if v := figure(g); v != nil {
			values.add([]float64{0}, runlog.Column{*v})
		}
	}
	return values
}

func (s *side) hostPeak() (highest *float64) {
	for _, h := range s.figures.Hosts {
		if h.UsedPeak != nil && (highest == nil || *h.UsedPeak > *highest) {
			highest = h.UsedPeak
		}
	}
	return highest
}

// comparedLogs are losses and error rates at the last step at which both runs logged them, and at
// the end of each.
func comparedLogs(a, b []Logged) (figures []view.ComparedFigure) {
	for _, m := range metrics {
		for _, key := range m.names(slices.Concat(a, b)) {
			x, y, name := bySteps(a, key).known(), bySteps(b, key).known(), m.source(key)+" "+
				m.short
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

// known is a line without what is not.
func (l line) known() (values line) {
	for i, value := range l.values {
		if !math.IsNaN(value) {
			values.add(l.times[i:i+1], l.values[i:i+1])
		}
	}
	return values
}

// latest is the last value, nil of none.
func (l line) latest() *float64 {
	if len(l.values) == 0 {
		return nil
	}
	return &l.values[len(l.values)-1]
}

// comparedCharts are what both runs logged, over steps; nil where no steps are known.
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
		Spans: []view.RunSpan{}}
}
