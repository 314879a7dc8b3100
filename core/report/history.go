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

// loggedCharts are the figures of the Trainer that are drawn, each with what its own line is called: beside it are those of evaluations.
var loggedCharts = []struct{ title, name, own string }{
	{"Loss", "loss", "training"}, {"WER", "wer", "training"}, {"CER", "cer", "training"}, {"Learning rate", "learning_rate", "learning rate"},
}

// figure is not a number where it is not known.
func (l Logged) figure(name string) float64 {
	if v := l[name]; v != nil && math.Abs(*v) <= largestLogged {
		return *v
	}
	return math.NaN()
}

// namesOf are the logged names of a figure: its own, and those of evaluations.
func namesOf(history []Logged, of string) (names []string) {
	for _, entry := range history {
		for name := range entry {
			if (name == of || evaluates(name, of)) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return names
}

// evaluates tells whether a name is that of a figure of an evaluation: eval_wer, or eval_SET_wer with several sets.
func evaluates(name, of string) bool {
	return strings.HasPrefix(name, evalPrefix) && strings.HasSuffix(name, "_"+of)
}

// evaluationOf is "evaluation" of eval_wer, "evaluation SET" of eval_SET_wer.
func evaluationOf(name, of string) string {
	set := strings.Trim(strings.TrimSuffix(strings.TrimPrefix(name, evalPrefix), of), "_")
	return strings.TrimSpace("evaluation " + set)
}

// logged is a figure at the moments at which its steps had been trained. Steps that no monitor saw are left out.
func (t *timeline) logged(history []Logged, name string) (found line) {
	steps, i := t.steps(runlog.KindTrain, number), 0
	for _, entry := range history {
		step := entry.figure(stepName)
		if _, has := entry[name]; !has || len(steps.values) == 0 || !(step >= steps.values[0]) {
			continue
		}
		for i < len(steps.values) && steps.values[i] < step {
			i++
		}
		if i == len(steps.values) {
			break
		}
		found.add(steps.times[i:i+1], runlog.Column{entry.figure(name)})
	}
	return found
}

// addLogged adds what the Trainer logged; a value that is not known breaks a line, the time between two values does not.
func (c *charts) addLogged(t *timeline, history []Logged) {
	others := []string{orange, green, purple, grey}
	for _, chart := range loggedCharts {
		var curves []curve
		sets := 0
		for _, name := range namesOf(history, chart.name) {
			found := curve{name: chart.own, line: t.logged(history, name), colour: blue, mean: true}
			if name != chart.name {
				found.name, found.colour = evaluationOf(name, chart.name), others[sets%len(others)]
				sets++
			}
			curves = append(curves, found)
		}
		c.add(view.RunPanel{Title: chart.title, Group: view.GroupTraining}, 1, curves...)
	}
}
