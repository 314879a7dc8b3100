package compare

import (
	"cmp"
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// Scenario is a published example of a training; of a training of the user's own it is empty.
type Scenario struct {
	GPU        string      `json:"gpu"`        // of the catalogue
	Model      string      `json:"model"`      // of the catalogue
	Parameters int64       `json:"parameters"` // that its batch was published for; 0: the model's
	Data       timing.Data `json:"data"`       // clips that it trains on
	Published  []string    `json:"published"`  // what was published of it
}

// scenarioData is 100 h of clips of 8 s, some over 20 s: of the published examples one names the
// mean, one that clips are over 20 s long, none how many there are.
var scenarioData = timing.Data{Clips: 45_000, MeanS: 8, MaxS: 24}

// The published parameters are those of 12.5 GB and 4.8 GB of model memory, at 16 B each.
var scenarios = []Scenario{
	{GPU: "L4", Model: "facebook/wav2vec2-xls-r-1b", Parameters: 781_250_000, Data: scenarioData,
		Published: []string{"4 × 8 by the formula; 0.8 samples/s with safe settings and 2.1 with " +
			"those, 2.6 times as fast; 87 % of memory used"}},
	{GPU: "A100-40GB SXM", Model: "facebook/wav2vec2-xls-r-1b", Parameters: 781_250_000,
		Data:      scenarioData,
		Published: []string{"8 × 4 by the formula; no out-of-memory error on clips over 20 s"}},
	{GPU: "T4", Model: "facebook/wav2vec2-xls-r-300m", Parameters: 300_000_000,
		Data: scenarioData, Published: []string{"8 × 4 by the formula"}},
}

// Scenarios are the published examples.
func Scenarios() []Scenario { return scenarios }

// publishedPrice is that of the published cost tables.
var publishedPrice = timing.Price{GPU: "L4", Hour: 0.40, Provider: "published"}

// HandCase is one training on one machine, with settings by hand and with the plan's. Seconds,
// hours of audio, bytes, dollars.
type HandCase struct {
	GPU         string `json:"gpu"`          // key of the catalogue
	Count       int    `json:"count"`        // GPUs
	MemoryBytes uint64 `json:"memory_bytes"` // of one GPU
	Model       string `json:"model"`
	Workload
	Price   *timing.Price `json:"price"`   // absent where none is known
	Rows    []HandRow     `json:"rows"`    // the plan's the last; absent where none fits
	Origins []Origin      `json:"origins"` // of the figures
}

// HandRow is the training with one set of settings. Rates, hours and dollars are absent where it
// does not fit.
type HandRow struct {
	Name string `json:"settings"` // "aggressive", "published", "safe" or "plan"
	Settings
	Fits bool `json:"fits"` // into all memory of the GPU, without a margin
	// clips trained on per second
	SampleRate *profile.Range `json:"samples_per_second"`
	// how many times faster the plan's run is
	PlanSpeed *float64    `json:"plan_speed"`
	Totals    []HandTotal `json:"totals"` // of one run and of ten
}

// HandTotal is what runs take, one after another.
type HandTotal struct {
	Runs    int            `json:"runs"`
	Hours   profile.Range  `json:"hours"`
	CostUSD *profile.Range `json:"cost_usd"` // on all GPUs; absent without a price
}

// Origin is where a figure comes from.
type Origin struct {
	Figure string `json:"figure"`
	Origin string `json:"origin"` // "predicted", "measured", "assumed", "published" or "given"
	Source string `json:"source"`
}

var totalRuns = []int{1, 10}

// byHand compares settings by hand with the planned row; or names what to trace first.
func (p *planner) byHand(m machine, planned Row) (HandCase, *plan.TraceRequest, error) {
	c := HandCase{GPU: m.card.Key, Count: m.count, MemoryBytes: planned.MemoryBytes,
		Model: cmp.Or(p.Model.Name, p.Model.ClassName), Workload: p.workload(), Rows: []HandRow{}}
	if price, ok := p.prices[m.card.Key]; ok {
		c.Price = &price
	}
	plans, wanted, err := plan.ByHand(p.inputs(m, p.Optimizer), p.ByHand.sized(p.Model))
	if wanted != nil || err != nil {
		return c, wanted, err
	}
	for _, hand := range plans {
		row := Row{GPU: planned.GPU, Count: planned.Count, MemoryBytes: planned.MemoryBytes}
		row.take(p, m, hand.Config)
		row.Fits = hand.Fits
		c.Rows = append(c.Rows, p.handRow(hand.Name, row, planned))
	}
	if planned.Fits {
		c.Rows = append(c.Rows, p.handRow("plan", planned, planned))
	}
	c.Origins = p.origins(c, planned)
	return c, nil, nil
}

// sized is a model of the published counts; nil where none were published.
func (s Scenario) sized(m profile.Model) *profile.Model {
	n := s.Parameters
	if n == 0 {
		return nil
	}
	m.TotalParameters, m.TrainableParameters, m.ParameterBytes, m.GradientBytes = n, n, 4*n, 4*n
	m.OptimizerBytes = map[string]int64{"adamw": 8 * n, "adamw_8bit": 2 * n,
		"adafactor": m.OptimizerBytes["adafactor"], "sgd": 0}
	return &m
}

func (p *planner) handRow(name string, row, planned Row) HandRow {
	h := HandRow{Name: name, Settings: row.Settings, Fits: row.Fits, Totals: []HandTotal{}}
	if !row.Fits || row.RunHours == nil {
		return h
	}
	rate := timing.Takes(float64(p.dataset.SampleCount), row.EpochHours.Times(3600))
	h.SampleRate = &rate
	if planned.RunHours != nil {
		speed := row.RunHours.Likely / planned.RunHours.Likely
		h.PlanSpeed = &speed
	}
	for _, runs := range totalRuns {
		total := HandTotal{Runs: runs, Hours: row.RunHours.Times(float64(runs))}
		if row.Price != nil {
			cost := total.Hours.Times(row.Price.Hour * float64(row.Count))
			total.CostUSD = &cost
		}
		h.Totals = append(h.Totals, total)
	}
	return h
}

// origins tell of each figure whether it is predicted, measured, assumed, published or given.
func (p *planner) origins(c HandCase, planned Row) []Origin {
	counts := "the model's parameters"
	if n := p.ByHand.Parameters; n != 0 {
		counts = fmt.Sprintf("%.0f M parameters, as published; the model has %.0f M",
			float64(n)/1e6, float64(p.Model.TotalParameters)/1e6)
	}
	rows := p.dataset.RowKind
	out := []Origin{
		{"aggressive", "assumed", fmt.Sprintf("the published formula at its boldest, a margin of "+
			"%.2f and no step down to 0.8 (preset speed), for %s", plan.BoldMargin, counts)},
		{"published", "published", fmt.Sprintf("the formula with a margin of %.2f, for %s",
			p.SafetyMargin, counts)},
		{"safe", "published", "batch 1, accumulated to the effective batch"},
		{"plan", "predicted", fmt.Sprintf("the fastest that fits into %.0f %% of the memory; "+
			"split: the guard sizes micro-batches by length", 100*p.SafetyMargin)},
		{"peak, out of memory", "predicted", fmt.Sprintf("a traced step of the longest %s, "+
			"against all memory of the card: close to 100 %% a run may fail", rows.Nouns())},
		{"samples/s, hours", "predicted", "times of single kernels, fitted on published " +
			"measurements; no run on this card was measured; hours include evaluations, " +
			"checkpoints and the start"},
	}
	if planned.Calibrated || planned.Measured != "" {
		out[len(out)-1] = Origin{"samples/s, hours", "measured", "kernels or steps measured on " +
			"this card; hours include evaluations, checkpoints and the start"}
	}
	if c.Price != nil {
		out = append(out, priceOrigin(*c.Price))
	}
	for _, text := range p.ByHand.Published {
		out = append(out, Origin{"figures of the guide", "published", text})
	}
	if p.Data.Profile == nil {
		return append(out, Origin{rows.Nouns(), "assumed", fmt.Sprintf("%s, %s on average, "+
			"%s at most", rows.Count(c.Clips), rows.Length(p.Data.MeanS), rows.Length(p.Data.MaxS))})
	}
	return append(out, Origin{rows.Nouns(), "measured", p.dataset.Source})
}

func priceOrigin(price timing.Price) Origin {
	o := Origin{"dollars", price.Provider, fmt.Sprintf("%s, %.2f an hour and GPU", price.GPU,
		price.Hour)}
	if price.Source != "" {
		o.Origin, o.Source = "published", fmt.Sprintf("%s: %s, %s, %s", o.Source, price.Provider,
			price.Date, price.Source)
	}
	return o
}
