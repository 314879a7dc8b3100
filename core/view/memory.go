package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// memoryRecord is an estimate of a training's memory; sizes are bytes.
type memoryRecord struct {
	peak.Estimate
	Model       string        `json:"model"`
	Shape       string        `json:"shape_words"`
	Settings    string        `json:"settings_words"`
	Headroom    *float64      `json:"headroom_bytes"`
	Target      target        `json:"target"`
	Calibration string        `json:"calibration_words"`
	Evaluation  *evaluation   `json:"evaluation"`
	RowKind     units.RowKind `json:"row_kind"`
	Remedies    []string      `json:"remedies"`
	Warnings    []string      `json:"warnings"`
}

// target is the GPU in mind; absent figures without one.
type target struct {
	Name          string  `json:"name"`
	Available     *uint64 `json:"available_bytes"`
	Context       *uint64 `json:"context_bytes"`
	ContextHigh   *uint64 `json:"context_high_bytes"`
	ContextSource string  `json:"context_source"`
	Limit         *uint64 `json:"limit_bytes"`
}

type evaluation struct {
	Batch         int      `json:"batch"`
	Seconds       float64  `json:"seconds"`
	PeakAllocated float64  `json:"peak_allocated"`
	OutputsSample float64  `json:"outputs_bytes_per_sample"`
	Generation    *float64 `json:"generation_cache_bytes"`
	GPU1000       float64  `json:"gpu_bytes_1000"` // of 1000 samples
	Host1000      float64  `json:"host_bytes_1000"`
}

var estimators = map[string]string{
	"trace":     "traced",
	"published": "published formula: a rough guess that ignores length",
}

// componentOrder is that in which shares of memory are drawn: what stays first, what comes and goes
// last.
var componentOrder = []string{"training", "model and optimizer", "parameters", "buffers",
	"gradients", "optimizer", "activations", "temporaries", "logits_loss", "outputs"}

const (
	noModule     = "(inputs and others outside modules)"
	shownModules = 5 // in text
	nearLimit    = 1.6
)

func memory(r memoryRecord) Document {
	title := fmt.Sprintf("%s, %s, %s (%s)", name(cmp.Or(r.Model, "model")),
		cmp.Or(r.Shape, "as recorded"), r.Settings, cmp.Or(estimators[r.Estimator], r.Estimator))
	moment, evaluation := "", ""
	if r.AtPeak.Op != "" {
		moment = fmt.Sprintf("at the peak: %s, %s%s", r.AtPeak.Phase, r.AtPeak.Op,
			in(r.AtPeak.Module))
	}
	if r.Evaluation != nil {
		evaluation = r.Evaluation.words(r.RowKind)
	}
	return Document{Title: title, Brief: r.brief(title), Blocks: []Block{r.verdict(),
		allFacts(r.peaks()), r.bar(), r.overEvents(),
		allFacts(moment, "peaks by phase: "+r.byPhase(), evaluation), r.remarks(), r.modules()}}
}

func (r memoryRecord) brief(title string) []Block {
	var holds []string
	for _, component := range ordered(r.AtPeak.Components) {
		holds = append(holds, fmt.Sprintf("%s %s (%s)", strings.ReplaceAll(component, "_", " "),
			units.Size(r.AtPeak.Components[component]), r.shareOfPeak(component)))
	}
	held := ""
	if holds != nil {
		held = "held by " + strings.Join(holds, ", ")
	}
	return []Block{allFacts(title), r.verdict(), allFacts(r.peaks(), held),
		facts{Items: r.remarks().Items, Brief: 4}}
}

// verdict is whether it fits, and by how much; the need alone when there is no GPU given.
func (r memoryRecord) verdict() notice {
	if r.Fits == nil || r.Headroom == nil {
		return notice{Level: "note", What: fmt.Sprintf(
			`needs %s and the CUDA context; name a GPU (gpu="L4") to see whether it fits`,
			units.Size(r.PeakReserved))}
	}
	gpu, need := name(r.Target.Name), known(r.PeakDevice, units.Size)
	available := known(r.Target.Available, units.Size)
	if !*r.Fits {
		n := notice{Level: "serious", What: fmt.Sprintf("does not fit %s: needs %s, has %s", gpu,
			need, available)}
		if s := r.OutOfMemory; s != nil {
			n.Lines = []string{fmt.Sprintf(
				"it would stop in %s at %s%s, asking for %s with %s allocated", s.Phase, s.Op,
				in(s.Module), units.Size(s.Wanted), units.Size(s.Allocated))}
		}
		return n
	}
	tight := ""
	if r.Retries > 0 {
		tight = ", after emptying the allocator's cache " + units.Times(int(r.Retries))
	}
	return notice{Level: "good", What: fmt.Sprintf("fits %s: %s of %s, %s to spare%s", gpu, need,
		available, units.Size(*r.Headroom), tight)}
}

func in(module string) string {
	if module == "" {
		return ""
	}
	return " in " + module
}

// peaks are the three figures that other tools show, told apart.
func (r memoryRecord) peaks() string {
	device := ""
	if c := r.Target.Context; c != nil {
		source := " (by a table)"
		if r.Target.ContextSource == "measured" {
			source = ""
		}
		device = fmt.Sprintf(", device %s with %s of context%s", known(r.PeakDevice, units.Size),
			units.Size(*c), source)
	}
	host := ""
	if pinned := profile.Or(r.PinnedBytes, 0); pinned > 0 {
		host = fmt.Sprintf("; %s of host memory pinned", units.Size(pinned))
	}
	return fmt.Sprintf("peak: allocated %s, reserved %s%s%s", units.Size(r.PeakAllocated),
		units.Size(r.PeakReserved), device, host)
}

// ordered are the shares of memory that hold any, in the order in which they are drawn.
func ordered(components map[string]uint64) []string {
	var names []string
	for component, bytes := range components {
		if bytes > 0 {
			names = append(names, component)
		}
	}
	slices.SortFunc(names, byComponent)
	return names
}

func byComponent(a, b string) int {
	place := func(component string) int {
		if i := slices.Index(componentOrder, component); i >= 0 {
			return i
		}
		return len(componentOrder)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
}

// shareOfPeak is "42%" of what is allocated at the peak.
func (r memoryRecord) shareOfPeak(component string) string {
	return fmt.Sprintf("%.0f%%", 100*float64(r.AtPeak.Components[component])/
		float64(max(r.PeakAllocated, 1)))
}

// component is a numbered part of memory, in its colour.
func component(number int, name string, bytes float64, note string) segment {
	return segment{Name: strings.ReplaceAll(name, "_", " "), Value: bytes,
		Text: units.Size(bytes), Colour: colourOf(name), Label: strconv.Itoa(number), Note: note}
}

// bar is what holds the peak, against the GPU's memory where one is known.
func (r memoryRecord) bar() bars {
	b := bars{Kind: "bars", Title: "memory at the peak", Unit: "bytes", Rows: []barRow{{}},
		Ticks: true, Legend: true, Aside: true}
	sum := uint64(0)
	add := func(name string, bytes uint64, note string) {
		b.Rows[0].Parts = append(b.Rows[0].Parts,
			component(len(b.Rows[0].Parts)+1, name, float64(bytes), note))
	}
	for _, name := range ordered(r.AtPeak.Components) {
		add(name, r.AtPeak.Components[name], r.shareOfPeak(name))
		sum += r.AtPeak.Components[name]
	}
	if r.PeakReserved > sum {
		add("reserved, not held", r.PeakReserved-sum, "")
	}
	if c := r.Target.Context; c != nil {
		add("context", *c, "")
	}
	b.Top = 1.02 * float64(max(profile.Or(r.Target.Available, 0), profile.Or(r.PeakDevice, 0),
		r.PeakReserved, sum, 1))
	if a := r.Target.Available; a != nil {
		b.Levels = []level{{Name: "available", At: float64(*a), Text: units.Size(*a), Limit: true}}
	}
	return b
}

// overEvents is the components stacked over the run's events, the reserved memory above them, the
// limit, and the phases; nothing of a run without events.
func (r memoryRecord) overEvents() (c curves) {
	t := r.Timeline
	if t == nil || len(t.Event) < 2 {
		return c
	}
	highest := float64(slices.Max(slices.Concat([]uint64{1}, t.Reserved, t.Allocated)))
	unit, unitName := binary(highest)
	c = curves{Kind: "curves", Title: "Over the events of the run", Unit: unitName,
		XUnit: "allocations and frees", X: axis{Low: float64(t.Event[0]),
			High: float64(max(t.Event[len(t.Event)-1], t.Event[0]+1))}}
	tallest := map[string]uint64{}
	for component, values := range t.Components {
		tallest[component] = slices.Max(append([]uint64{0}, values...))
	}
	for _, component := range ordered(tallest) {
		c.Series = append(c.Series, Series{Name: strings.ReplaceAll(component, "_", " "),
			Colour: colourOf(component), Stacked: true,
			Pieces: piece(*t, t.Components[component], unit)})
	}
	c.Series = append(c.Series, Series{Name: "reserved", Pieces: piece(*t, t.Reserved, unit)})
	if l := r.Target.Limit; l != nil {
		limit := float64(*l)
		c.Limit = &Limit{At: limit / unit, Name: "limit " + units.Size(limit)}
		if limit <= nearLimit*highest {
			highest = max(highest, limit)
		}
	}
	c.Top = 1.04 * highest / unit
	before := -1
	for i, phase := range t.Phase[:min(len(t.Phase), len(t.Event))] {
		if phase != before && phase >= 0 && phase < len(r.Phases) {
			c.Events = append(c.Events, event{At: float64(t.Event[i]), Level: "phase",
				Text: r.Phases[phase].Phase})
		}
		before = phase
	}
	return c
}

func piece(t peak.Timeline, values []uint64, unit float64) [][][2]float64 {
	places := make([][2]float64, min(len(values), len(t.Event)))
	for i := range places {
		places[i] = [2]float64{float64(t.Event[i]), float64(values[i]) / unit}
	}
	if len(places) == 0 {
		return nil
	}
	return [][][2]float64{places}
}

// byPhase is the highest allocated memory in each phase, over all segments.
func (r memoryRecord) byPhase() string {
	var peaks []string
	for _, phases := range Grouped(r.Phases, func(p peak.Phase) string { return p.Phase }) {
		highest := uint64(0)
		for _, p := range phases {
			highest = max(highest, p.PeakAllocated)
		}
		peaks = append(peaks, phases[0].Phase+" "+units.Size(highest))
	}
	return strings.Join(peaks, ", ")
}

// words are one batch, what stays of each sample, and a whole evaluation of a thousand samples.
func (v evaluation) words(rows units.RowKind) string {
	text := fmt.Sprintf("evaluation, %d × %s %s: %s allocated; of each sample the Trainer keeps "+
		"%s, so 1000 samples take %s on the GPU and %s of host RAM "+
		"(eval_accumulation_steps or preprocess_logits_for_metrics avoid it)", v.Batch,
		rows.Figure("%.6g", v.Seconds), rows.Unit(), units.Size(v.PeakAllocated),
		units.Size(v.OutputsSample), units.Size(v.GPU1000), units.Size(v.Host1000))
	if v.Generation != nil && *v.Generation > 0 {
		text += fmt.Sprintf("; generating keeps %s of keys and values", units.Size(*v.Generation))
	}
	return text
}

// remarks are what else the reader should know, each with its mark: a warning, a remedy, a note.
func (r memoryRecord) remarks() facts {
	var lines []string
	for _, text := range append(slices.Clone(r.Warnings), r.doubt()...) {
		lines = append(lines, "! "+text)
	}
	for _, text := range r.Remedies {
		lines = append(lines, "→ to make it fit: "+text)
	}
	if r.Calibration != "" {
		lines = append(lines, "· "+r.Calibration)
	}
	for _, text := range r.Notes {
		lines = append(lines, "· "+text)
	}
	return allFacts(lines...)
}

// doubt: whether it fits may hang on what the context takes, which a table knows only roughly.
func (r memoryRecord) doubt() []string {
	t := r.Target
	if r.Fits == nil || !*r.Fits || t.Context == nil || t.ContextHigh == nil ||
		profile.Or(r.Headroom, 0) >= float64(*t.ContextHigh)-float64(*t.Context) {
		return nil
	}
	return []string{fmt.Sprintf(
		"the CUDA context may take up to %s, and then it would not fit; calibrate on the GPU to "+
			"know", units.Size(*t.ContextHigh))}
}

func (r memoryRecord) modules() fold {
	rows := [][]string{{"held", "module"}}
	for _, m := range r.AtPeak.Modules {
		if m.Bytes > 0 {
			rows = append(rows, []string{units.Size(m.Bytes), cmp.Or(m.Module, noModule)})
		}
	}
	t := plain(rows)
	t.Brief = shownModules
	return fold{Summary: "allocated memory by module", Body: []Block{t}}
}
