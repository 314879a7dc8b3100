package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// Logged is an entry of the Trainer's log_history: "step" and what was logged at it, such as "loss" and "eval_wer". Null is not known.
type Logged map[string]*float64

const (
	stepName      = "step"
	evalPrefix    = "eval_"
	largestLogged = 1e30 // beyond it a figure is taken for one that is not known
)

// metric is a figure that the Trainer logs: by its own name, and as eval_NAME or eval_SET_NAME for evaluations.
type metric struct{ name, title, short, own string }

var (
	metrics      = []metric{{"loss", "Loss", "loss", "training"}, {"wer", "WER", "WER", "training"}, {"cer", "CER", "CER", "training"}}
	learningRate = metric{"learning_rate", "Learning rate", "learning rate", "learning rate"}
)

// figure is not a number where it is not known.
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
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
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

// bySteps are what was logged under a name, with steps for times; not a number where it is not known.
func bySteps(history []Logged, name string) (found line) {
	for _, entry := range history {
		step := entry.figure(stepName)
		if _, has := entry[name]; has && !math.IsNaN(step) {
			found.add([]float64{step}, runlog.Column{entry.figure(name)})
		}
	}
	return found
}

// curves are of all names of a metric: its own has the first colour, evaluations have the others.
func (m metric) curves(history []Logged, place func(line) line, colours ...string) (found []curve) {
	for _, name := range m.names(history) {
		colour := colours[0]
		if name != m.name {
			colour, colours = colours[1], append(colours[:1:1], append(colours[2:], colours[1])...)
		}
		found = append(found, curve{name: m.source(name), line: place(bySteps(history, name)), colour: colour, mean: true})
	}
	return found
}

// moments places what has steps for times where these had been trained first; what was logged before the first step, at that. Steps that
// no monitor saw are left out.
func (t *timeline) moments(l line) (found line) {
	steps, i := t.steps(runlog.KindTrain, number), 0
	for k, step := range l.times {
		for i < len(steps.values) && steps.values[i] < step {
			i++
		}
		if i < len(steps.values) && step >= steps.values[0]-1 {
			found.add(steps.times[i:i+1], l.values[k:k+1])
		}
	}
	return found
}

// addLogged adds what the Trainer logged.
func (c *charts) addLogged(t *timeline, history []Logged) {
	for _, m := range append(slices.Clone(metrics), learningRate) {
		c.add(view.RunPanel{Title: m.title, Group: view.GroupTraining}, 1, m.curves(history, t.moments, blue, orange, green, purple, grey)...)
	}
}
