package plan

import (
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// peak is the memory of a micro-batch of the longest clips on the tightest device: traced, or simulated from the config.
func (s *search) peak(f found, batch int) (TracedPeak, error) {
	if f.traced != nil {
		if traced, known := f.traced.peak(batch); known {
			return traced, nil
		}
	}
	if s.ask == nil {
		return f.traced.Peaks[len(f.traced.Peaks)-1], nil
	}
	e, err := s.ask.Estimate(s.question(f.way, batch))
	if err != nil {
		return TracedPeak{}, err
	}
	beside, err := s.place.Beside(s.in.Model.TrainableParameters)
	if err != nil {
		return TracedPeak{}, err
	}
	parts := []profile.Part{}
	for name, bytes := range e.AtPeak.Components {
		parts = append(parts, profile.Part{Name: name, Bytes: int64(bytes)})
	}
	parts = append(parts, profile.Part{Name: "cached", Bytes: int64(e.PeakReserved - e.PeakAllocated)}, profile.Part{Name: "context", Bytes: int64(beside)})
	return TracedPeak{Batch: batch, Bytes: int64(e.PeakReserved + beside), Parts: drawn(parts)}, nil
}

// order in which parts of memory are drawn; those that are not here come before "cached".
var order = []string{"parameters", "buffers", "gradients", "optimizer", "inputs", "activations", "temporaries", "outputs", "workspaces"}

func drawn(parts []profile.Part) []profile.Part {
	place := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order) + slices.Index([]string{"", "cached", "context"}, name) + 1
	}
	slices.SortFunc(parts, func(a, b profile.Part) int {
		if d := place(a.Name) - place(b.Name); d != 0 {
			return d
		}
		return int(b.Bytes - a.Bytes)
	})
	return slices.DeleteFunc(parts, func(p profile.Part) bool { return p.Bytes <= 0 })
}

// writeDevices says what each GPU does. Cards with more room take larger micro-batches where the guard cuts.
func (s *search) writeDevices(d *draft, f found) error {
	d.Distributed = "none"
	why := "one device"
	if s.pool.count > 1 {
		d.Distributed, why = "ddp", "each GPU holds the whole model, which fits"
	}
	d.because("distributed", why)
	d.Devices = []profile.Device{}
	for i, g := range s.pool.gpus {
		planned, _ := plannedMemory(g, d.SafetyMargin)
		device := profile.Device{Index: g.Index, Name: g.Name, Samples: s.share, MicroBatchSize: d.MicroBatchSize,
			PeakBytes: d.PredictedBytes, BudgetBytes: int64(planned * d.SafetyMargin)}
		if i != s.pool.tightest && d.MicroBatching == memoryMicro && s.ask != nil && device.BudgetBytes > d.BudgetBytes {
			own := *s
			own.place = estimate.Place{GPU: g, Devices: s.pool.count, Budget: uint64(device.BudgetBytes)}
			q := own.question(f.way, 1)
			device.MicroBatchSize = max(d.MicroBatchSize, s.ask.Largest(q, own.place, 1, 1, s.share))
			peak, err := own.peak(found{way: f.way}, device.MicroBatchSize)
			if err != nil {
				return err
			}
			device.PeakBytes = peak.Bytes
		}
		d.Devices = append(d.Devices, device)
	}
	return nil
}

// writeTimes says how long it takes, where the device's speed is known.
func (s *search) writeTimes(d *draft, f found) {
	if !f.pace.known {
		return
	}
	epoch := s.epochHours(d, f.chosen)
	hours := timing.Range(epoch)
	run := hours.Times(d.NumTrainEpochs)
	loader := s.loading(d.DataloaderNumWorkers)
	t := &profile.Times{EpochHours: epoch, RunHours: profile.Range(run), StepS: profile.Range(hours.Times(3600 / float64(f.chosen.steps))),
		AudioRate: profile.Range(timing.Takes(s.audio.seconds(), hours.Times(3600))), Bound: f.pace.bound(f.chosen), Calibrated: s.in.Options.Calibration != nil}
	if loader.Likely > f.chosen.epoch.Likely {
		t.Bound = "loader"
		d.warn(fmt.Sprintf("The loader needs %.2g h for an epoch, the GPU %.2g h: store the audio decoded, or take a machine with more cores.",
			loader.Likely/3600, f.chosen.epoch.Likely/3600))
	}
	if price := s.in.Options.PriceUSDHour; price != nil {
		cost := profile.Range(run.Times(*price * float64(s.pool.count)))
		t.CostUSD = &cost
	}
	if energy := timing.Energy(s.place.GPU, s.pool.count, run); energy != nil {
		used := profile.Range(*energy)
		t.EnergyKWh = &used
	}
	d.Times = t
}

// bound names what takes most of an epoch.
func (p pace) bound(b batches) string {
	perMicro := float64(max(1, b.figures.MicroBatches)) / float64(max(1, b.figures.Steps))
	return p.parts.Times(perMicro).Plus(p.finish(perMicro)).Bound()
}

// writeAlternatives lists other ways to train: the published rule's, other batches, other settings.
func (s *search) writeAlternatives(d *draft, f found, ways []found) error {
	d.Alternatives = []profile.Alternative{}
	if err := s.published(d, f); err != nil {
		return err
	}
	for _, b := range f.all {
		if b.handling == f.chosen.handling && b.cut == f.chosen.cut {
			continue
		}
		what := fmt.Sprintf("%.1f %% padding", 100*b.figures.Padding)
		if b.figures.MicroBatch != nil {
			what = fmt.Sprintf("%d × %d, %s", *b.figures.MicroBatch, s.share / *b.figures.MicroBatch, what)
		}
		s.alternative(d, f, batchName(b), what, nil, b)
	}
	for _, other := range append(slices.Clone(ways[1:]), s.eightBit(f)...) {
		what := fmt.Sprintf("%d clips of %.4g s at once", other.memory.Largest(s.audio.longest()), s.audio.longest())
		name := map[bool]string{true: "with checkpointing", false: "without checkpointing"}[other.checkpointing] + ", " + other.precision
		if other.optimizer != f.optimizer {
			name = other.optimizer
		}
		peak, err := s.peak(other, max(1, other.memory.Largest(s.audio.longest())))
		if err != nil {
			return err
		}
		s.alternative(d, f, name, what, &peak.Bytes, other.chosen)
	}
	return nil
}

func batchName(b batches) string {
	order := map[string]string{"random": "random order", "grouped": "group_by_length", "bucketed": "steps of one length", "packed": "packed steps"}[b.handling]
	if b.cut == fixedMicro {
		return order + ", one size"
	}
	return order + ", cut by memory"
}

func (s *search) alternative(d *draft, f found, name, what string, peak *int64, b batches) {
	fits, speed := true, rounded(b.epoch.Likely/f.chosen.epoch.Likely)
	a := profile.Alternative{Name: name, What: what, Fits: &fits, PeakBytes: peak, Speed: &speed}
	if f.pace.known {
		epoch := s.epochHours(d, b)
		a.EpochHours = &epoch
	}
	d.Alternatives = append(d.Alternatives, a)
}

// eightBit is the fastest way with the optimizer's 8-bit form: advice, as it changes the mathematics a little.
func (s *search) eightBit(f found) []found {
	if s.ask == nil || s.pool.onCPU() || !estimate.HasEightBit(f.optimizer) {
		return nil
	}
	w := f.way
	w.optimizer = estimate.EightBit
	other, fits, err := s.look(w)
	if err != nil || !fits {
		return nil
	}
	return []found{other}
}

// published is what the published rule would take, by its own formula, and what that really needs.
func (s *search) published(d *draft, f found) error {
	in := s.in
	in.Options.Policy, in.Options.Precision, in.Options.GradientCheckpointing = PublishedRule, "", nil
	c, err := published{}.Plan(in)
	if err != nil {
		return nil //nolint:nilerr // the formula finds no plan: then there is nothing to show beside
	}
	precision := map[bool]string{true: "fp16", false: "fp32"}[c.FP16]
	if c.BF16 {
		precision = "bf16"
	}
	w := way{precision, c.GradientCheckpointing, f.optimizer}
	checkpointing := map[bool]string{true: "with checkpointing", false: "without checkpointing"}[c.GradientCheckpointing]
	a := profile.Alternative{Name: PublishedRule, What: fmt.Sprintf("%d × %d, %s, %s, random order", c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps, precision, checkpointing)}
	d.Alternatives = append(d.Alternatives, a)
	if s.ask == nil {
		return nil
	}
	last := &d.Alternatives[len(d.Alternatives)-1]
	bytes, fits, err := s.ask.Need(s.question(w, c.PerDeviceTrainBatchSize), s.place, false)
	if err != nil {
		if estimate.TooLarge(err) {
			return nil
		}
		return err
	}
	peak := int64(bytes)
	last.Fits, last.PeakBytes = &fits, &peak
	if !fits {
		return nil
	}
	p, err := s.pace(w, c.PerDeviceTrainBatchSize)
	if err != nil {
		return err
	}
	b := s.plainCost(p, c.PerDeviceTrainBatchSize)
	speed := rounded(b.epoch.Likely / f.chosen.epoch.Likely)
	last.Speed = &speed
	if p.known {
		epoch := s.epochHours(d, b)
		last.EpochHours = &epoch
	}
	return nil
}

// plainCost is an epoch in random order with one size of micro-batch.
func (s *search) plainCost(p pace, size int) batches {
	sample := s.audio.sample(s.share*s.pool.count, s.pool.count)
	scale := float64(s.audio.count) / float64(len(sample)) / float64(s.pool.count)
	micro := scale * float64(len(sample)) / float64(size)
	steps := max(1, (s.audio.count+s.share*s.pool.count-1)/(s.share*s.pool.count))
	cost := scale*batching.Expected(sample, size) + p.overheadS*micro
	return batches{handling: "random", cut: fixedMicro, costS: cost, steps: steps, epoch: p.epoch(cost, steps, micro)}
}

// warnings are what the user should know before starting.
func (s *search) warnings(d *draft) {
	for _, note := range s.notes {
		d.warn("Times are not known: " + note + ".")
	}
	if !s.mixing && s.audio.fixed == 0 {
		d.warn("The model's feature encoder normalizes over time, so that results depend on padding: the guard keeps the padding of each step, and only steps of similar length save time.")
	}
	free := s.in.Options.DiskFreeBytes
	checkpoint := s.in.Model.ParameterBytes + s.in.Model.OptimizerBytes[optimizers[s.in.Options.Optimizer].state]
	if free != nil && *free < 2*checkpoint {
		d.warn(fmt.Sprintf("A checkpoint takes about %s and %s are free on the disk: set save_total_limit, save_only_model, or another output_dir.",
			gb(float64(checkpoint)), gb(float64(*free))))
	}
	if s.in.Dataset.SampleCount == 1 {
		d.warn(fmt.Sprintf("The dataset has %s: this is a test of the machinery, not a training.", fault.Plural(1, "clip")))
	}
}
