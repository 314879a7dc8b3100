package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// RunComparison is two runs beside each other; core/report works it out.
type RunComparison struct {
	A ComparedRun `json:"a"`
	B ComparedRun `json:"b"`
	// the steps that both made, which figures are of; null: none, and they are of whole runs
	First    *uint64           `json:"first"`
	Last     *uint64           `json:"last"`
	Figures  []ComparedFigure  `json:"figures"`
	Settings []ComparedSetting `json:"settings"` // those that differ
	Charts   *RunCharts        `json:"charts"`   // null where no steps are known
}

// ComparedRun is one of the runs, with the steps that it made.
type ComparedRun struct {
	Name       string   `json:"name"`
	Headline   string   `json:"headline"`
	First      *uint64  `json:"first"`
	Last       *uint64  `json:"last"`
	Configured bool     `json:"configured"` // whether there is a training_config.json
	Notes      []string `json:"notes"`      // files that cannot be read
}

// ComparedFigure is a figure of two runs, A and B; null where it is not known. Ratio is B over A.
type ComparedFigure struct {
	Key  string `json:"key"`
	Name string `json:"name"`
	// "bytes", "share", "s", "Wh", "count", or "" for what its name says
	Unit  string   `json:"unit"`
	A     *float64 `json:"a"`
	B     *float64 `json:"b"`
	Ratio *float64 `json:"ratio"`
}

// ComparedSetting is a setting of training_config.json that differs.
type ComparedSetting struct {
	Name string `json:"name"`
	A    any    `json:"a"`
	B    any    `json:"b"`
}

const (
	listedSettings = 6  // in text
	headLength     = 40 // of a run's name over a column, and of a setting
)

// figureTexts write figures by their unit; those of no unit have three digits that count.
var figureTexts = map[string]func(float64) string{"bytes": size, "share": units.Percent,
	"s": units.Duration, "Wh": energy,
	"count": func(x float64) string { return fmt.Sprintf("%.0f", x) }}

func (f ComparedFigure) text(value *float64) string {
	if text, ok := figureTexts[f.Unit]; ok {
		return known(value, text)
	}
	return known(value, short)
}

func compareRuns(r RunComparison) Document {
	doc := Document{Title: r.headline()}
	facts, figures, charts := allFacts(r.facts()...), r.figures(), beside(nil)
	if r.Charts != nil {
		for _, p := range r.Charts.Panels {
			c := runRecord{Charts: *r.Charts}.chart(p)
			c.Aside = true // a line of text would show the first run alone
			charts = append(charts, []Block{c})
		}
	}
	doc.Blocks = []Block{facts, figures, r.settings(),
		section{Title: "Over optimizer steps", Body: []Block{charts}}}
	figures.Brief = shownRows
	doc.Brief = []Block{allFacts(doc.Title), facts, figures}
	return doc
}

// headline is how many times what B was of A, by what counts most.
func (r RunComparison) headline() string {
	var parts []string
	steps, clips := r.ratioOf("steps_per_s"), r.ratioOf("clips_per_s")
	if steps != nil && clips != nil && math.Abs(*clips.Ratio / *steps.Ratio - 1) > 0.01 {
		steps = clips // as a step of one run has more clips than one of the other
	}
	for _, figure := range []*ComparedFigure{steps, r.ratioOf("used_peak_bytes"),
		r.ratioOf("eval_wer"), r.ratioOf("eval_loss"), r.ratioOf("loss")} {
		if figure != nil && len(parts) < 3 {
			parts = append(parts, fmt.Sprintf("%s × %s", ratioText(*figure.Ratio), figure.Name))
		}
	}
	return fmt.Sprintf("%s against %s: %s", name(r.B.Name), name(r.A.Name),
		cmp.Or(strings.Join(parts, ", "), "nothing is known of both"))
}

// ratioOf is the figure of that key, nil where its ratio is not known.
func (r RunComparison) ratioOf(key string) *ComparedFigure {
	i := slices.IndexFunc(r.Figures, func(f ComparedFigure) bool {
		return f.Key == key && f.Ratio != nil
	})
	if i < 0 {
		return nil
	}
	return &r.Figures[i]
}

// ratioText has two decimals, or three that count.
func ratioText(x float64) string {
	if x >= 0.1 && x < 100 {
		return fmt.Sprintf("%.2f", x)
	}
	return short(x)
}

func (r RunComparison) facts() []string {
	lines := append([]string{r.A.Name + ": " + r.A.Headline}, r.A.Notes...)
	lines = append(append(lines, r.B.Name+": "+r.B.Headline), r.B.Notes...)
	if r.First == nil {
		return append(lines, "no step was made by both: figures are of whole runs")
	}
	words := fmt.Sprintf("figures are of steps %d to %d, which both made", *r.First, *r.Last)
	for _, run := range []ComparedRun{r.A, r.B} {
		if *run.First != *r.First || *run.Last != *r.Last {
			words += fmt.Sprintf("; %s made %d to %d", run.Name, *run.First, *run.Last)
		}
	}
	return append(lines, words)
}

func (r RunComparison) figures() table {
	rows := [][]string{{"", clipped(r.A.Name, headLength), clipped(r.B.Name, headLength), "ratio"}}
	for _, f := range r.Figures {
		rows = append(rows, []string{f.Name, f.text(f.A), f.text(f.B), known(f.Ratio, ratioText)})
	}
	return plain(rows)
}

func (r RunComparison) settings() section {
	rows := [][]string{{"setting", clipped(r.A.Name, headLength), clipped(r.B.Name, headLength)}}
	for _, s := range r.Settings {
		rows = append(rows, []string{s.Name, setting(s.A), setting(s.B)})
	}
	t := plain(rows)
	t.Brief = listedSettings
	body := Block(t)
	if len(t.Rows) == 0 {
		body = allFacts(r.unchanged())
	}
	return section{Title: "Settings that differ", Body: []Block{body}}
}

func (r RunComparison) unchanged() string {
	for _, run := range []ComparedRun{r.A, r.B} {
		if !run.Configured {
			return "not known: " + run.Name + " has no training_config.json"
		}
	}
	return "none in training_config.json"
}

// setting is a value as Python writes it.
func setting(value any) string {
	switch v := value.(type) {
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatFloat(v, 'f', 0, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return clipped(strconv.Quote(v), headLength)
	}
	return "None"
}
