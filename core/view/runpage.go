package view

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// runRecord is the report of a run: its figures, what held it back, what was warned of, and its
// charts.
type runRecord struct {
	RunFigures
	Findings []finding `json:"findings"`
	Trainer  *trainer  `json:"trainer"`
	Guard    *guarded  `json:"guard"`
	Ranks    []string  `json:"rank_words"`
	BadClips []string  `json:"bad_clip_words"`
	Notes    []string  `json:"notes"`
	Charts   RunCharts `json:"charts"`
	Failures []failure `json:"out_of_memory"`
}

// RunFigures are what follows from a run's logs; core/report works it out. Sizes are bytes, times
// seconds from the run's start.
type RunFigures struct {
	Start    float64 `json:"start_unix_s"`
	Duration float64 `json:"duration_s"`
	GapS     float64 `json:"gap_s"` // without samples
	Gaps     int     `json:"gaps"`
	Samples  int     `json:"samples"`
	Errors   int     `json:"errors"`
	Interval float64 `json:"interval_s"`
	// of all GPUs that tell their power; what was not sampled is not counted
	EnergyWh *float64      `json:"energy_wh"`
	Steps    StepFigures   `json:"steps"`
	GPUs     []GPUFigures  `json:"gpus"`
	Hosts    []HostFigures `json:"hosts"`
	Alerts   []Alert       `json:"alerts"`
	Events   []Moment      `json:"events"`
	Bands    []Band        `json:"bands"`
	Monitors []string      `json:"monitors"`
	// a training that began, and of whose end nothing is known
	Unfinished bool `json:"unfinished"`
}

// StepFigures are optimizer steps, evaluation batches and checkpoints, with seconds that they took.
type StepFigures struct {
	Train       int      `json:"train"`
	Evaluation  int      `json:"evaluation"`
	Checkpoint  int      `json:"checkpoint"`
	First       *uint64  `json:"first"`
	Last        *uint64  `json:"last"`
	TrainS      *float64 `json:"train_s"`
	EvaluationS *float64 `json:"evaluation_s"`
	CheckpointS *float64 `json:"checkpoint_s"`
	// of the time of training steps alone, as AudioRate
	StepsPerS *float64 `json:"steps_per_s"`
	AudioRate *float64 `json:"audio_rate"` // seconds of audio a second
	Padding   *float64 `json:"padding"`    // share of computed audio that is none
	// share of time that steps waited for the loader
	Waited *float64 `json:"waited"`
	// what the model's arithmetic takes at the published rate, of the time of training steps
	MFU         *float64 `json:"model_flops_utilization"`
	LongestClip *float64 `json:"longest_clip_s"`
}

// GPUFigures are those of one GPU; shares are 0 to 1, means are over time.
type GPUFigures struct {
	Label      string   `json:"label"`
	Name       string   `json:"name"`
	Total      *float64 `json:"total_bytes"`
	UsedMean   *float64 `json:"used_mean_bytes"`
	UsedPeak   *float64 `json:"used_peak_bytes"`
	UsedPeakAt *float64 `json:"used_peak_at_s"`
	Allocated  *float64 `json:"allocated_peak_bytes"`
	Reserved   *float64 `json:"reserved_peak_bytes"`
	// at the peak of a step; what PyTorch's cache holds unused is free
	Headroom     *float64 `json:"headroom_lowest_bytes"`
	HeadroomAt   *float64 `json:"headroom_lowest_at_s"`
	Others       *float64 `json:"others_peak_bytes"`
	Utilization  *float64 `json:"utilization"`
	MemoryBusy   *float64 `json:"memory_busy"`
	SMActive     *float64 `json:"sm_active"`
	TensorActive *float64 `json:"tensor_active"`
	Power        *float64 `json:"power_w"`
	EnergyWh     *float64 `json:"energy_wh"`
	Hottest      *float64 `json:"temperature_peak_c"`
	ClockMHz     *float64 `json:"clock_mhz"`
	// share of time that each reason held the clock back
	Throttled map[string]float64 `json:"throttled"`
}

// HostFigures are those of one machine.
type HostFigures struct {
	Label       string   `json:"label"`
	Total       *float64 `json:"total_bytes"`
	CPUs        int      `json:"cpus"`
	Contained   bool     `json:"contained"`
	UsedPeak    *float64 `json:"used_peak_bytes"`
	Available   *float64 `json:"available_lowest_bytes"`
	Tree        *float64 `json:"tree_rss_peak_bytes"`
	Workers     *float64 `json:"workers_rss_peak_bytes"`
	Swap        *float64 `json:"swap_peak_bytes"`
	SharedTotal *float64 `json:"shm_total_bytes"`
	SharedPeak  *float64 `json:"shm_peak_bytes"`
	CPU         *float64 `json:"cpu_share"`
	TreeCPU     *float64 `json:"tree_cpu_share"`
	BusiestCore *float64 `json:"busiest_core"`
	DiskRead    *float64 `json:"disk_read_bytes_s"`
	DiskWritten *float64 `json:"disk_written_bytes_s"`
	NetReceived *float64 `json:"net_received_bytes_s"`
	NetSent     *float64 `json:"net_sent_bytes_s"`
}

// Alert is a warning and its outcome: "came true" (memory ran out, or what was warned of was used
// up, AfterS later), "averted" (cleared by a clean-up), "cleared", or "held" until the end.
type Alert struct {
	runlog.Alert
	Where   string   `json:"where"` // the label of a GPU, "" for the host
	Outcome string   `json:"outcome"`
	AfterS  *float64 `json:"after_s"`
	X       float64  `json:"x,omitempty"`       // on the charts' axis
	UntilX  *float64 `json:"until_x,omitempty"` // absent while it held to the end
}

// Moment is something that happened once.
type Moment struct {
	AtS   float64 `json:"at_s"`
	Kind  string  `json:"kind"`
	Where string  `json:"where"` // the label of a GPU, or ""
	Text  string  `json:"text"`
	X     float64 `json:"x,omitempty"`
}

// Band is a time in which something lasted: "evaluation", "checkpoint" or "gap".
type Band struct {
	BeginS float64 `json:"begin_s"`
	EndS   float64 `json:"end_s"`
	Kind   string  `json:"kind"`
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
	shownSnapshots = 10
	shownEvents    = 200 // in HTML
	listedEvents   = 30  // in text
)

func run(r runRecord) Document {
	doc := Document{Title: r.Headline(), Blocks: []Block{r.badges(), said(r.facts()...), r.tiles()}}
	var notices []Block
	for _, f := range r.Findings {
		notices = append(notices, notice{Level: levelOf(f.Severity), What: f.Title,
			Lines: advice(f.Evidence, f.Change)})
	}
	doc.Brief = append([]Block{said(doc.Title)}, notices...)
	doc.Blocks = append(doc.Blocks, section{Title: "Findings", Body: notices})
	doc.Blocks = append(doc.Blocks, failures(r.Failures)...)
	if len(r.Alerts) > 0 {
		doc.Blocks = append(doc.Blocks, section{Title: "Alerts", Body: []Block{alerts(r.Alerts)}})
	}
	if r.Duration > 0 {
		doc.Blocks = append(doc.Blocks, r.overTime())
	}
	doc.Blocks = append(doc.Blocks, r.gpus()...)
	doc.Blocks = append(doc.Blocks, section{Title: "Host", Body: []Block{r.hosts()}})
	doc.Blocks = append(doc.Blocks, r.events()...)
	return doc
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
		parts = append(parts, short(*s)+" steps/s")
	}
	if mean, _, _, ok := r.busy(); ok {
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
	return "ran out " + times(n)
}

func (r RunFigures) machines() string {
	var names []string
	for _, g := range r.GPUs {
		names = append(names, or(g.Name, "an unknown GPU"))
	}
	return or(several(names), "the CPU")
}

// busy is the mean of the GPUs' utilisation, the lowest and the highest.
func (r RunFigures) busy() (mean, low, high float64, ok bool) {
	n := 0
	for _, g := range r.GPUs {
		if u := g.Utilization; u != nil {
			if n == 0 {
				low, high = *u, *u
			}
			mean, low, high, n = mean+*u, min(low, *u), max(high, *u), n+1
		}
	}
	return mean / float64(max(1, n)), low, high, n > 0
}

// tightest is the GPU that had the least headroom.
func (r RunFigures) tightest() *GPUFigures {
	var gpu *GPUFigures
	for i, g := range r.GPUs {
		if g.Headroom != nil && (gpu == nil || *g.Headroom < *gpu.Headroom) {
			gpu = &r.GPUs[i]
		}
	}
	return gpu
}

func (r runRecord) badges() badges {
	counts, critical := map[string]int{}, 0
	for _, f := range r.Findings {
		counts[levelOf(f.Severity)]++
	}
	for _, a := range r.Alerts {
		if a.Severity == "critical" {
			critical++
		}
	}
	var b badges
	add := func(level string, n int, noun string) {
		if n > 0 {
			b = append(b, badge{level, count(n, noun)})
		}
	}
	add("serious", counts["serious"], "finding")
	add("warning", counts["warning"], "finding")
	add("serious", critical, "critical alert")
	add("warning", len(r.Alerts)-critical, "alert")
	if b == nil {
		return badges{{"good", "nothing was warned of"}}
	}
	return b
}

// facts are when, how it was sampled, what the Trainer and the guard say.
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
		lines = append(lines, "no end of the training was told: its process was killed, or it "+
			"still trains")
	}
	if r.Guard != nil {
		lines = append(lines, "guard: memory "+ranOut(len(r.Guard.Events)+len(r.Guard.Restarts)))
		var snapshots []string
		for _, e := range r.Guard.Events {
			if e.Snapshot != "" {
				snapshots = append(snapshots, e.Snapshot)
			}
		}
		for _, file := range snapshots[:min(shownSnapshots, len(snapshots))] {
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

// tiles are the figures that are known.
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
	figures = append(figures, r.gpuTiles()...)
	var fullest *HostFigures
	for i, h := range r.Hosts {
		if h.UsedPeak != nil && (fullest == nil ||
			filled(h.UsedPeak, h.Total) > filled(fullest.UsedPeak, fullest.Total)) {
			fullest = &r.Hosts[i]
		}
	}
	if fullest != nil {
		figures = append(figures, tile{Name: "host RAM", Value: size(*fullest.UsedPeak),
			Note: "peak, of " + known(fullest.Total, size)})
	}
	return figures
}

// useful is a tile of model FLOPs utilization.
func useful(share float64) tile {
	return tile{Name: "useful work", Value: units.Percent(share), Note: "of the peak rate (MFU)"}
}

// filled is the share of a total, 0 where it is not known.
func filled(used, total *float64) float64 { return orZero(shareOf(used, total)) }

func (r runRecord) gpuTiles() tiles {
	var figures tiles
	if mean, low, high, ok := r.busy(); ok {
		note := "of the time"
		if units.Percent(low) != units.Percent(high) {
			note = units.Percent(low) + " to " + units.Percent(high)
		}
		figures = append(figures, tile{Name: "GPU busy", Value: units.Percent(mean), Note: note})
	}
	var fullest *GPUFigures
	for i, g := range r.GPUs {
		if g.UsedPeak != nil && (fullest == nil ||
			filled(g.UsedPeak, g.Total) > filled(fullest.UsedPeak, fullest.Total)) {
			fullest = &r.GPUs[i]
		}
	}
	if fullest != nil {
		figures = append(figures, tile{Name: "GPU memory", Value: size(*fullest.UsedPeak),
			Note: "peak, of " + known(fullest.Total, size)})
	}
	if t := r.tightest(); t != nil {
		figures = append(figures, tile{Name: "headroom", Value: size(*t.Headroom),
			Note: "least, at " + intoRun(orZero(t.HeadroomAt))})
	}
	if r.EnergyWh != nil {
		watts := 0.0
		for _, g := range r.GPUs {
			watts += orZero(g.Power)
		}
		figures = append(figures, tile{Name: "energy", Value: energy(*r.EnergyWh),
			Note: fmt.Sprintf("mean %s W", short(watts))})
	}
	return figures
}

// gpus is a row for each, with a meter of the peak in the total; of a single one text has a line
// for each figure.
func (r runRecord) gpus() []Block {
	if len(r.GPUs) == 0 {
		return nil
	}
	t := table{Head: []string{"GPU", "name", "busy", "memory, peak", "allocated", "reserved",
		"headroom, lowest", "power", "energy", "hottest", "held back by", "others' memory"}}
	for _, g := range r.GPUs {
		cells := g.cells()
		gpuRow := row{}
		for i, text := range cells {
			c := cell{Text: text, Class: "tight"}
			if i == 1 || i >= 10 {
				c.Class = ""
			}
			if i == 3 {
				c.Meter = filled(g.UsedPeak, g.Total)
			}
			gpuRow.Cells = append(gpuRow.Cells, c)
		}
		t.Rows = append(t.Rows, gpuRow)
	}
	if len(r.GPUs) > 1 {
		t.Skip = map[int]bool{1: true, 4: true, 5: true, 10: true, 11: true}
		return []Block{section{Title: "GPUs", Body: []Block{t}}}
	}
	var lines pairs
	for i, cells := 1, r.GPUs[0].cells(); i < len(cells); i++ {
		lines = append(lines, [2]string{t.Head[i], cells[i]})
	}
	return []Block{section{Title: "GPU", Body: []Block{inHTML{[]Block{t}},
		inText(lines.lines(defaultWidth))}}}
}

func (g GPUFigures) cells() []string {
	var throttles []string
	for _, reason := range sortedKeys(g.Throttled) {
		throttles = append(throttles, reason+" "+units.Percent(g.Throttled[reason]))
	}
	return []string{
		g.Label, name(g.Name), known(g.Utilization, units.Percent), known(g.UsedPeak, size) +
			" of " + known(g.Total, size), known(g.Allocated, size), known(g.Reserved, size),
		known(g.Headroom, size), known(g.Power, amount("W")), known(g.EnergyWh, energy),
		known(g.Hottest, amount("°C")), or(strings.Join(throttles, ", "), unknown),
		known(g.Others, size),
	}
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

func (r runRecord) events() []Block {
	if len(r.Events) == 0 {
		return nil
	}
	var lines inText
	rows := [][]string{{"at", "of", "what"}}
	for i, e := range r.Events {
		if i < shownEvents {
			rows = append(rows, []string{intoRun(e.AtS), or(e.Where, "host"), e.Text})
		}
		if i < listedEvents {
			where := e.Where
			if where != "" {
				where += ": "
			}
			lines = append(lines, wrap(aligned(intoRun(e.AtS), 9)+"  "+where+e.Text, defaultWidth-2,
				"           ")...)
		}
	}
	if hidden := len(r.Events) - listedEvents; hidden > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", hidden))
	}
	body := []Block{plain(rows)}
	if hidden := len(r.Events) - shownEvents; hidden > 0 {
		body = append(body, said(fmt.Sprintf("… and %d more in the run's file", hidden)))
	}
	summary := count(len(r.Events), "event")
	if r.GapS > 0 {
		summary += fmt.Sprintf(", %s without samples", units.Duration(r.GapS))
	}
	return []Block{section{Title: "Events", Body: []Block{lines,
		inHTML{[]Block{fold{Summary: summary, Body: body}}}}}}
}
