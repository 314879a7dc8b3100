package report

import (
	"maps"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/fault"
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

// Compare gives the figures of two runs over the steps that both made, and the settings that differ. Errors: Corrupt, InvalidArgument.
func Compare(r CompareRequest) (found view.RunComparison, err error) {
	a, err := newSide(r.A)
	if err != nil {
		return found, err
	}
	b, err := newSide(r.B)
	if err != nil {
		return found, err
	}
	found = view.RunComparison{A: a.told(), B: b.told(), Settings: changed(a.Config, b.Config)}
	if found.A.Last != nil && found.B.Last != nil {
		first, last := max(*found.A.First, *found.B.First), min(*found.A.Last, *found.B.Last)
		if first <= last {
			found.First, found.Last = &first, &last
		}
		if first <= last && (a.partly(first, last) || b.partly(first, last)) {
			a.cut(first, last)
			b.cut(first, last)
		}
	}
	found.Figures = append(comparedFigures(a, b), comparedLogs(a.History, b.History)...)
	found.Charts = comparedCharts(a, b)
	return found, nil
}

func newSide(run Compared) (*side, error) {
	start, err := placed(run.Sources)
	if err != nil {
		return nil, err
	}
	if len(run.Sources) == 0 {
		return nil, fault.New(fault.InvalidArgument, "pass what its monitors saw", "comparing runs: %q has no run logs", fault.Shorten(run.Name))
	}
	s := &side{Compared: run, timeline: newTimeline(run.Sources), errors: run.Guard}
	s.all = s.timeline.figures(float64(start)/1e9, run.Guard)
	s.figures = s.all
	return s, nil
}

func (s *side) told() view.ComparedRun {
	return view.ComparedRun{Name: s.Name, Headline: s.all.Headline(), First: s.all.Steps.First, Last: s.all.Steps.Last, Configured: s.Config != nil, Notes: s.Notes}
}

// partly tells whether the run made other steps, too.
func (s *side) partly(first, last uint64) bool {
	return *s.all.Steps.First != first || *s.all.Steps.Last != last
}

// changed are the settings that differ, by name, without the reasons of a plan, which are lists and objects, and its figures.
func changed(a, b map[string]any) []view.ComparedSetting {
	found, either := []view.ComparedSetting{}, maps.Clone(a)
	if a == nil || b == nil {
		return found
	}
	maps.Copy(either, b)
	for _, name := range slices.Sorted(maps.Keys(either)) {
		if x, y := a[name], b[name]; scalar(x) && scalar(y) && x != y && !slices.Contains(plannedFigures, name) {
			found = append(found, view.ComparedSetting{Name: name, A: x, B: y})
		}
	}
	return found
}

var plannedFigures = []string{"budget_bytes", "model_memory_bytes", "predicted_bytes", "predicted_high_bytes"}

func scalar(value any) bool {
	switch value.(type) {
	case nil, bool, string, float64:
		return true
	}
	return false
}
