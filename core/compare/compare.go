package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/parallel"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// Workload is what is trained, whatever the machine. Seconds, hours of audio.
type Workload struct {
	RowKind  units.RowKind `json:"row_kind"` // "texts": 50 tokens count as a second
	Clips    int           `json:"clips"`
	Hours    float64       `json:"hours"`     // what the clips last
	LongestS float64       `json:"longest_s"` // seconds of the clip that memory is planned for
	Target   int           `json:"target_batch_size"`
	Epochs   float64       `json:"epochs"`
}

// Comparison is what one training takes on each of several machines. Bytes, dollars.
type Comparison struct {
	Model profile.Model `json:"model"`
	Workload
	Rows        []Row    `json:"rows"`        // in the order asked for
	Assumptions []string `json:"assumptions"` // what the figures rest on
	// of each machine, where settings by hand were asked for
	ByHand []HandCase `json:"by_hand"`
}

// Settings are those of one training on one machine.
type Settings struct {
	Precision     string `json:"precision"`
	Checkpointing bool   `json:"gradient_checkpointing"`
	// with checkpointing: one of so many layers is computed again; 1, each
	EveryNLayers int `json:"every_n_layers"`
	// what checkpointed layers save is kept in pinned host memory
	Offload      bool   `json:"offload_checkpoints"`
	Optimizer    string `json:"optimizer"`
	Batch        int    `json:"per_device_train_batch_size"`
	Accumulation int    `json:"gradient_accumulation_steps"`
	// "fixed", or "memory": the guard splits each step (manager.attach)
	MicroBatching string `json:"micro_batching"`
	// predicted for one GPU, context included, for a batch of the longest clips
	PeakBytes uint64 `json:"peak_bytes"`
}

// Row is the plan for one GPU, or for several of them; sizes are bytes of one. The settings are
// those of the plan for that machine. Times, cost and energy are absent when it does not fit.
type Row struct {
	GPU         string `json:"gpu"`          // key of the catalogue
	Count       int    `json:"count"`        // GPUs
	MemoryBytes uint64 `json:"memory_bytes"` // of one GPU
	BudgetBytes uint64 `json:"budget_bytes"` // of it with the safety margin
	// some of the card's published figures were not checked against a source
	Unverified bool `json:"unverified"`
	Fits       bool `json:"fits"`

	Settings
	LoRARank  int64 `json:"lora_rank"`
	Effective int   `json:"effective_batch_size"`
	// about the most clips, all of the longest, that fit in such a micro-batch
	LargestBatch int `json:"largest_batch"`

	// the order of clips: "random", "grouped", "stratified" or "bucketed"
	LengthHandling string `json:"length_handling"`

	// of the mean step, without the loader; absent without published figures
	Parts      *profile.StepParts `json:"parts"`
	StepS      *profile.Range     `json:"step_s"` // seconds
	EpochHours *profile.Range     `json:"epoch_hours"`
	RunHours   *profile.Range     `json:"run_hours"`  // of the whole run
	RunParts   *profile.RunParts  `json:"run_parts"`  // hours that add up to it
	AudioRate  *profile.Range     `json:"audio_rate"` // seconds of audio trained on per second
	Bound      string             `json:"bound"`      // the largest part of the time, or "loader"
	Calibrated bool               `json:"calibrated"` // by measured steps
	// the day on which kernels of this card were measured that the times rest on; "" for none
	Measured string         `json:"measured"`
	Cost     *profile.Range `json:"cost_usd"` // of the run on all its GPUs; absent without a price
	// of the run, GPUs alone; absent where the board power is not known
	EnergyKWh *profile.Range `json:"energy_kwh"`
	Price     *timing.Price  `json:"price"`    // absent where none is known
	Cheapest  bool           `json:"cheapest"` // of all machines, by the likely cost
	Fastest   bool           `json:"fastest"`  // of all machines, by the likely hours

	Notes    []string          `json:"notes"`
	Remedies []estimate.Remedy `json:"remedies"` // what would make it fit, when it does not
}

// Answer is a comparison, or what to trace before there is one.
type Answer struct {
	Comparison *Comparison `json:"comparison"`
	Wanted     *Wanted     `json:"wanted"`
}

// Make compares. Errors: those of unknown GPUs, of data without clips, and InvalidArgument.
func Make(r Request) (Answer, error) {
	p, machines, err := prepare(r)
	if err != nil {
		return Answer{}, err
	}
	rows, traces := make([]Row, len(machines)), make([]*plan.TraceRequest, len(machines))
	cases := []HandCase{}
	if r.ByHand != nil {
		cases = make([]HandCase, len(machines))
	}
	if err := parallel.Do(len(machines), func(i int) (err error) {
		rows[i], traces[i], err = p.row(machines[i])
		if err == nil && traces[i] == nil && r.ByHand != nil {
			cases[i], traces[i], err = p.byHand(machines[i], rows[i])
		}
		return err
	}); err != nil {
		return Answer{}, err
	}
	if wanted := p.wanted(machines, traces); wanted != nil {
		return Answer{Wanted: wanted}, nil
	}
	c := p.comparison(machines, rows)
	c.ByHand = cases
	return Answer{Comparison: c}, nil
}

func (p *planner) workload() Workload {
	return Workload{RowKind: cmp.Or(p.dataset.RowKind, units.Clips),
		Clips: p.dataset.SampleCount, Hours: p.dataset.TotalHours, LongestS: p.dataset.MaxS,
		Target: p.TargetBatchSize, Epochs: profile.Or(p.NumTrainEpochs, plan.DefaultEpochs)}
}

// comparison is the rows with what they have in common.
func (p *planner) comparison(machines []machine, rows []Row) *Comparison {
	c := Comparison{Model: p.Model, Workload: p.workload(), Rows: rows}
	c.Assumptions = p.assumptions(machines)
	if fixed := fixedS(machines); fixed > 0 {
		c.LongestS = min(c.LongestS, fixed)
	}
	c.mark()
	split := 0
	for _, row := range c.Rows {
		if row.MicroBatching == "memory" {
			split++
		}
	}
	if split > 0 {
		c.Assumptions = append(c.Assumptions,
			fmt.Sprintf("on %s the guard (manager.attach) splits each step by length and "+
				"predicted memory, as planned", fault.Plural(split, "machine")))
	}
	return &c
}

func prepare(r Request) (p *planner, machines []machine, err error) {
	if r, err = r.completed(); err != nil {
		return nil, nil, err
	}
	p = &planner{Request: r, cards: Cards()}
	if machines, err = r.machines(); err != nil {
		return nil, nil, err
	}
	if p.prices, err = r.prices(); err != nil {
		return nil, nil, err
	}
	if p.factors, err = byCard(r.Calibrations); err != nil {
		return nil, nil, err
	}
	for key, f := range p.factors {
		if !positive(f.Low) || !(f.Low <= f.Factor && f.Factor <= f.High) || !positive(f.High) {
			return nil, nil, fault.New(fault.InvalidArgument,
				"take it from timing.step (estimate_step_time with measured_s)",
				"the calibration of %s is %v, %v, %v", key, f.Low, f.Factor, f.High)
		}
	}
	for _, measured := range p.KernelProfiles {
		if err := measured.Check(); err != nil {
			return nil, nil, err
		}
	}
	if p.dataset, p.durations, err = r.Data.Dataset(); len(r.Durations) > 0 {
		p.durations = r.Durations
	}
	if err == nil && len(p.Traced) != 0 && len(p.Traced) != len(machines) {
		err = fault.New(fault.InvalidArgument, "pass what was wanted of each",
			"traces of %d machines for %d", len(p.Traced), len(machines))
	}
	return p, machines, err
}

// assumptions lists what the figures rest on.
func (p *planner) assumptions(machines []machine) []string {
	rows, out := p.dataset.RowKind,
		[]string{"times are estimates of single kernels, fitted on published measurements; a " +
			"calibration by measured steps replaces them"}
	if fixed := fixedS(machines); fixed > 0 {
		out = append(out, fmt.Sprintf(
			"every %s takes as long as one of %s: the feature extractor pads it", rows.Noun(),
			rows.Length(fixed)))
	}
	for _, m := range machines {
		for _, t := range m.traced {
			for _, text := range t.Warnings() {
				if !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	if p.Data.Profile == nil {
		out = append(out, rows.Lengths()+
			" assumed log-normal about the given mean, up to the given longest")
	}
	if p.LoaderRate == nil {
		worker := timing.WorkerRate(rows, p.Model.Architecture, p.dataset.SampleRates)
		out = append(out, fmt.Sprintf(
			"a loader's worker assumed to prepare %s (%s to %s) per second",
			rows.Rate(worker.Likely), rows.Figure("%.0f", worker.Low),
			rows.Figure("%.0f", worker.High)))
	}
	if p.Workers != nil {
		out = append(out, fmt.Sprintf("%s of the loader for each GPU",
			fault.Plural(*p.Workers, "worker")))
	}
	set := rows.Nouns() + " to evaluate with assumed to be a tenth of those trained on"
	if p.EvalSamples != nil {
		set = fmt.Sprintf("evaluations of %s", rows.Count(*p.EvalSamples))
	}
	return append(out, set+"; hours a run include evaluations, checkpoints and the start")
}

// fixedS is the seconds to which the model pads every clip, by its traces; 0 where clips keep their
// length.
func fixedS(machines []machine) (seconds float64) {
	for _, m := range machines {
		for _, t := range m.traced {
			seconds = max(seconds, t.FixedS)
		}
	}
	return seconds
}

// mark finds the cheapest and the fastest of those that fit.
func (c *Comparison) mark() {
	fastest, cheapest := -1, -1
	for i, row := range c.Rows {
		if !row.Fits || row.RunHours == nil {
			continue
		}
		if fastest < 0 || row.RunHours.Likely < c.Rows[fastest].RunHours.Likely {
			fastest = i
		}
		if row.Cost != nil && (cheapest < 0 || row.Cost.Likely < c.Rows[cheapest].Cost.Likely) {
			cheapest = i
		}
	}
	if fastest >= 0 {
		c.Rows[fastest].Fastest = true
	}
	if cheapest >= 0 {
		c.Rows[cheapest].Cheapest = true
	}
}

// row is the plan for one machine: as requested, or with the first lighter form of the optimizer
// with which it fits; or what to trace first.
func (p *planner) row(m machine) (row Row, wanted *plan.TraceRequest, err error) {
	g := m.card.GPU()
	row = Row{GPU: m.card.Key, Count: m.count, MemoryBytes: g.MemoryTotalBytes,
		Unverified: m.card.Unverified, LoRARank: int64(p.LoRARank),
		BudgetBytes: uint64(p.SafetyMargin * float64(g.MemoryTotalBytes)),
		Settings:    Settings{Precision: cmp.Or(p.precision(g), estimate.Precision(g))},
		Notes:       []string{}, Remedies: []estimate.Remedy{}}
	for _, optimizer := range append([]string{p.Optimizer}, estimate.Lighter(p.Optimizer)...) {
		in := p.inputs(m, optimizer)
		if wanted, err = plan.Next(in); wanted != nil || err != nil {
			return row, wanted, err
		}
		planned, err := plan.Make(in)
		if err == nil {
			row.take(p, m, planned)
			return row, nil, nil
		}
		if fault.From(err).Code != fault.Infeasible {
			return row, nil, err
		}
	}
	row.Remedies, err = plan.Remedies(p.inputs(m, p.Optimizer))
	return row, nil, err
}

func (row *Row) take(p *planner, m machine, c profile.Config) {
	row.Fits, row.Checkpointing, row.EveryNLayers, row.Offload, row.Optimizer =
		true, c.GradientCheckpointing, c.EveryNLayers, c.OffloadCheckpoints, c.Optimizer
	row.Precision, row.Batch, row.Accumulation =
		c.Precision(), c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps
	row.Effective, row.PeakBytes = c.Effective(), uint64(c.PredictedBytes)
	row.MicroBatching, row.LengthHandling = c.MicroBatching, c.LengthHandling
	if t := c.Times; t != nil {
		row.Parts, row.StepS, row.EpochHours, row.AudioRate =
			&t.Parts, &t.StepS, &t.EpochHours, &t.AudioRate
		row.RunHours, row.RunParts = &t.RunHours, &t.RunParts
		row.Bound, row.Calibrated, row.Measured, row.Cost, row.EnergyKWh =
			t.Bound, t.Calibrated, t.Measured, t.CostUSD, t.EnergyKWh
	}
	if price, ok := p.prices[m.card.Key]; ok {
		row.Price = &price
	}
	row.note(p, m)
	row.LargestBatch = max(row.Batch, row.tracedLargest(m, c.MaxLengthS, p.dataset.MaxS))
}

func (row *Row) note(p *planner, m machine) {
	capability := m.card.GPU().ComputeCapability
	note := func(format string, args ...any) {
		row.Notes = append(row.Notes, fmt.Sprintf(format, args...))
	}
	if row.Optimizer != p.Optimizer {
		note("%s instead of %s, with which it does not fit", row.Optimizer, p.Optimizer)
	}
	if row.Precision != cmp.Or(p.Precision, row.Precision) {
		note("%s instead of bf16, which compute capability %s lacks", row.Precision, capability)
	}
	if row.Effective != p.TargetBatchSize {
		note("the effective batch is %d, not %d: %s share it evenly", row.Effective,
			p.TargetBatchSize, fault.Plural(m.count, "GPU"))
	}
	if row.RunHours == nil {
		note("no published figures of the card, so that times are not known")
	}
	if strings.HasPrefix(capability, "3.") {
		note("current PyTorch no longer runs on compute capability %s", capability)
	}
}

// maxMicro is the largest micro-batch that is looked for: above what any GPU of the catalogue needs
// to be busy, and has room for of short texts.
const maxMicro = 8192
