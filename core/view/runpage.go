package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/diagnosis"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// runRecord is the report of a run: its figures, what held it back, what was warned of, and its
// charts.
type runRecord struct {
	RunFigures
	Findings []diagnosis.Finding `json:"findings"`
	Trainer  *trainer            `json:"trainer"`
	Guard    *guarded            `json:"guard"`
	Ranks    []string            `json:"rank_words"`
	BadClips []string            `json:"bad_clip_words"`
	Notes    []string            `json:"notes"`
	Charts   RunCharts           `json:"charts"`
	Failures []failure           `json:"out_of_memory"`
}

type trainer struct {
	Step     int      `json:"global_step"`
	Steps    *int     `json:"max_steps"`
	Epoch    *float64 `json:"epoch"`
	LastLoss *float64 `json:"last_loss"`
	Best     *float64 `json:"best_metric"`
}

type guarded struct {
	Events   []guardEvent `json:"events"`
	Restarts []struct{}   `json:"restarts"`
}

type guardEvent struct {
	Snapshot string `json:"snapshot"` // a file; "" for none
}

const (
	nearlyAll      = 0.95 // of the run's time: what else it did is not worth a word
	shownSnapshots = 10
	shownEvents    = 200 // in HTML
	listedEvents   = 30  // in text
)

func run(r runRecord) Document {
	var notices []Block
	for _, f := range r.Findings {
		notices = append(notices, finding(f, f.Change))
	}
	title := r.Headline()
	return Document{Title: title, Brief: append([]Block{allFacts(title)}, notices...),
		Blocks: []Block{allFacts(r.facts()...), r.tiles(),
			section{Title: "Findings", Body: notices}, failures(r.Failures),
			section{Title: "Alerts", Body: r.alertNotices()}, r.overTime(), r.gpus(),
			section{Title: "Host", Body: []Block{r.hosts()}}, r.events()}}
}

func finding(f diagnosis.Finding, remedy string) notice {
	return notice{Level: levelOf(f.Severity), What: f.Title, Lines: advice(f.Evidence, remedy)}
}

// Headline is the run in one sentence: steps and time, where, how busy, what was left of the
// memory.
func (r RunFigures) Headline() string {
	done := ""
	if r.Steps.Train > 0 {
		done = count(r.Steps.Train, "step") + " in "
	}
	parts := []string{fmt.Sprintf("%s%s on %s", done, units.Duration(r.Duration), r.machines())}
	if s := r.Steps.StepsPerS; s != nil {
		speed := short(*s) + " steps/s"
		if t := r.Steps.TrainS; t != nil && *t < nearlyAll*r.Duration {
			speed += fmt.Sprintf(" in %s of the time", units.Percent(*t/r.Duration))
		}
		parts = append(parts, speed)
	}
	if mean, known := r.busy(); known {
		parts = append(parts, fmt.Sprintf("GPU %s busy", units.Percent(mean)))
	}
	outs, tight := 0, r.tightest()
	for _, e := range r.Events {
		if e.Kind == "out_of_memory" {
			outs++
		}
	}
	switch {
	case outs > 0:
		parts = append(parts, "memory "+ranOut(outs))
	case tight != nil:
		parts = append(parts, fmt.Sprintf("at least %s of GPU memory left", size(*tight.Headroom)))
	}
	return strings.Join(parts, "; ")
}

func ranOut(n int) string {
	if n == 0 {
		return "never ran out"
	}
	return "ran out " + units.Times(n)
}

func (r RunFigures) machines() string {
	var names []string
	for _, g := range r.GPUs {
		names = append(names, cmp.Or(g.Name, "an unknown GPU"))
	}
	return cmp.Or(several(names), "the CPU")
}

// busy is the mean of the GPUs' utilisation; false where none is known.
func (r RunFigures) busy() (mean float64, known bool) {
	n := 0.0
	for _, g := range r.GPUs {
		if g.Utilization != nil {
			mean, n = mean+*g.Utilization, n+1
		}
	}
	return mean / max(1, n), n > 0
}

func (r RunFigures) tightest() *GPUFigures {
	var gpu *GPUFigures
	for i, g := range r.GPUs {
		if g.Headroom != nil && (gpu == nil || *g.Headroom < *gpu.Headroom) {
			gpu = &r.GPUs[i]
		}
	}
	return gpu
}

func (r runRecord) facts() []string {
	failed := ""
	if r.Errors > 0 {
		failed = ", " + count(r.Errors, "failed reading")
	}
	lines := []string{fmt.Sprintf("%s to %s; %s, one each %s%s", clock(r.Start),
		clock(r.Start+r.Duration), count(r.Samples, "sample"), units.Duration(r.Interval), failed)}
	if r.GapS > 0 {
		lines = append(lines, fmt.Sprintf("no samples for %s, in %s", units.Duration(r.GapS),
			count(r.Gaps, "gap")))
	}
	if len(r.Monitors) > 1 {
		lines = append(lines, fmt.Sprintf("%d monitors: %s", len(r.Monitors),
			units.Listed(r.Monitors, ", ", 8)))
	}
	if r.Trainer != nil {
		lines = append(lines, r.Trainer.words())
	}
	if r.Unfinished {
		lines = append(lines, "the end of the training was not reported: it was stopped or killed, "+
			"or still trains")
	}
	if r.Guard != nil {
		lines = append(lines, "guard: memory "+ranOut(len(r.Guard.Events)+len(r.Guard.Restarts)))
		var snapshots []string
		for _, e := range r.Guard.Events {
			if e.Snapshot != "" {
				snapshots = append(snapshots, e.Snapshot)
			}
		}
		for _, file := range first(shownSnapshots, snapshots) {
			lines = append(lines, "memory snapshot of that moment, for pytorch.org/memory_viz: "+
				file)
		}
	}
	for _, batch := range r.BadClips {
		lines = append(lines, "bad clips: "+batch)
	}
	return append(append(lines, r.Ranks...), r.Notes...)
}

func (t trainer) words() string {
	step := fmt.Sprintf("Trainer: step %d", t.Step)
	if t.Steps != nil {
		step += fmt.Sprintf(" of %d", *t.Steps)
	}
	parts := []string{step}
	for _, figure := range []struct {
		name  string
		value *float64
	}{{"epoch", t.Epoch}, {"last loss", t.LastLoss}, {"best metric", t.Best}} {
		if figure.value != nil {
			parts = append(parts, figure.name+" "+short(*figure.value))
		}
	}
	return strings.Join(parts, ", ")
}

func (r runRecord) tiles() tiles {
	s := r.Steps
	figures := tiles{{Name: "time", Value: units.Duration(r.Duration),
		Note: count(s.Train, "step")}}
	if s.StepsPerS != nil && *s.StepsPerS > 0 {
		figures = append(figures, tile{Name: "a step", Value: units.Duration(1 / *s.StepsPerS),
			Note: short(*s.StepsPerS) + " steps/s"})
	}
	if s.AudioRate != nil {
		note := ""
		if s.Padding != nil {
			note = units.Percent(*s.Padding) + " padding"
		}
		figures = append(figures, tile{Name: "audio", Value: short(*s.AudioRate) + " s/s",
			Note: note})
	}
	if s.Waited != nil {
		figures = append(figures, tile{Name: "loader wait", Value: units.Percent(*s.Waited),
			Note: "of step time"})
	}
	if s.MFU != nil {
		figures = append(figures, useful(*s.MFU))
	}
	return figures
}

func useful(share float64) tile {
	return tile{Name: "useful work", Value: units.Percent(share), Note: "of the peak rate (MFU)"}
}

func (r runRecord) events() section {
	rows := [][]string{{"at", "of", "what"}}
	for _, e := range first(shownEvents, r.Events) {
		rows = append(rows, []string{aligned(intoRun(e.AtS), 7), cmp.Or(e.Where, "host"), e.Text})
	}
	t := plain(rows)
	t.Brief, t.More = listedEvents, len(r.Events)-len(t.Rows)
	return section{Title: "Events", Body: []Block{fold{Summary: count(len(r.Events), "event"),
		Body: []Block{t}}}}
}

// gpus is a row for each, with a meter of the peak in the total; of a single one a line for each
// figure.
func (r runRecord) gpus() section {
	t := table{Head: []string{"GPU", "name", "busy", "memory, peak", "allocated", "reserved",
		"headroom, lowest", "power", "energy", "hottest", "held back by", "others' memory"},
		Skip: map[int]bool{1: true, 4: true, 5: true, 10: true, 11: true}}
	for _, g := range r.GPUs {
		cells := g.cells()
		cells[3].Meter = profile.Or(shareOf(g.UsedPeak, g.Total), 0)
		t.Rows = append(t.Rows, row{Cells: cells})
	}
	if len(t.Rows) != 1 {
		return section{Title: "GPUs", Body: []Block{t}}
	}
	var lines pairs
	for i, c := range t.Rows[0].Cells[1:] {
		lines = append(lines, [2]string{t.Head[i+1], c.Text})
	}
	return section{Title: "GPU", Body: []Block{lines}}
}

func (g GPUFigures) cells() []cell {
	var throttles []string
	for _, reason := range sortedKeys(g.Throttled) {
		throttles = append(throttles, reason+" "+units.Percent(g.Throttled[reason]))
	}
	return cellsOf(g.Label, name(g.Name), known(g.Utilization, units.Percent), known(g.UsedPeak, size)+
		" of "+known(g.Total, size), known(g.Allocated, size), known(g.Reserved, size),
		known(g.Headroom, size), known(g.Power, amount("W")), known(g.EnergyWh, energy),
		known(g.Hottest, amount("°C")), cmp.Or(strings.Join(throttles, ", "), unknown),
		known(g.Others, size))
}

func (r runRecord) hosts() pairs {
	var rows pairs
	for _, h := range r.Hosts {
		limit := ""
		if h.Contained {
			limit = ", the container's limit"
		}
		for _, pair := range [][2]string{
			{"RAM", fmt.Sprintf("%s at the peak of %s%s", known(h.UsedPeak, size),
				known(h.Total, size), limit)},
			{"available, lowest", known(h.Available, size)},
			{"this training", fmt.Sprintf("%s, its loader workers %s", known(h.Tree, size),
				known(h.Workers, size))},
			{"/dev/shm", fmt.Sprintf("%s at the peak of %s", known(h.SharedPeak, size),
				known(h.SharedTotal, size))},
			{"swap", known(h.Swap, size) + " at the peak"},
			{"processors", fmt.Sprintf("%s of %d, this training %s, the busiest core %s",
				known(h.CPU, units.Percent), h.CPUs, known(h.TreeCPU, units.Percent),
				known(h.BusiestCore, units.Percent))},
			{"disk", fmt.Sprintf("read %s, written %s", known(h.DiskRead, units.Rate),
				known(h.DiskWritten, units.Rate))},
			{"network", fmt.Sprintf("received %s, sent %s", known(h.NetReceived, units.Rate),
				known(h.NetSent, units.Rate))},
		} {
			if h.Label != "" {
				pair[0] = h.Label + ": " + pair[0]
			}
			rows = append(rows, pair)
		}
	}
	return rows
}
