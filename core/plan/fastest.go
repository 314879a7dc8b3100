package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// planFastest searches for the lowest predicted time per epoch among all that fits, candidate
// settings times batching strategies, and explains the value of every setting. Traces decide what
// fits, core/timing predicts times.
func planFastest(in Inputs) (profile.Config, error) {
	if len(in.Traced) == 0 {
		return byFormula(in)
	}
	s, err := newSearch(in)
	if err != nil {
		return profile.Config{}, err
	}
	if !s.anyTraced() {
		return byFormula(in)
	}
	s, ranked, err := s.feasible()
	if err != nil {
		return profile.Config{}, err
	}
	if len(ranked) == 0 {
		return profile.Config{}, s.infeasible()
	}
	return s.write(ranked)
}

// feasible is the candidates that fit, the fastest first, with the search that found them: without
// the few longest clips where nothing fits with them.
func (s *search) feasible() (*search, []evaluated, error) {
	if err := s.checkPrecision(); err != nil {
		return s, nil, err
	}
	ranked, err := s.run()
	if err != nil || len(ranked) > 0 {
		return s, ranked, err
	}
	shorter, err := s.shortened()
	if err != nil || shorter == nil {
		return s, nil, err
	}
	ranked, err = shorter.run()
	return shorter, ranked, err
}

// checkPrecision names options that the devices cannot fulfil.
func (s *search) checkPrecision() error {
	precision := s.in.Options.Precision
	switch {
	case s.pool.onCPU() && profile.Or(s.in.Options.OffloadCheckpoints, false):
		return fault.New(fault.InvalidArgument, "leave offload_checkpoints out",
			"offload_checkpoints is true, and there is no GPU to offload from")
	case s.pool.onCPU() && precision == "fp16":
		return fault.New(fault.InvalidArgument, "leave precision out",
			"precision is fp16, and there is no GPU: a CPU trains in float32")
	case precision == "bf16" && !s.pool.onCPU() && len(bf16Missing(s.pool.gpus)) > 0:
		return fault.New(fault.InvalidArgument, `leave precision out, or ask for "fp16"`,
			"precision is bf16, which %s (compute capability %s) does not have",
			bf16Missing(s.pool.gpus), oldest(s.pool.gpus).ComputeCapability)
	}
	return nil
}

func bf16Missing(gpus []profile.GPU) string {
	for _, g := range gpus {
		if !g.BF16 {
			return g.Name
		}
	}
	return ""
}

// byFormula plans by the published formula where no trace has the model's memory.
func byFormula(in Inputs) (profile.Config, error) {
	in.Options.Policy = PublishedRule
	c, err := planPublished(in)
	if err != nil {
		return c, err
	}
	n := profile.Or(in.NotTraced, NotTraced{Why: "it was not traced",
		Fix: "Plan with the model itself where torch and transformers are installed."})
	c.Warnings = append([]string{fmt.Sprintf(
		"The memory of a step of %s is unknown: %s. Planned by the published formula, "+
			"which ignores the length of %s. %s", in.Model.ClassOrName(), n.Why,
		in.Dataset.RowKind.Nouns(), n.Fix)}, c.Warnings...)
	if ignored := in.Options.beyondFormula(); len(ignored) > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("The published formula ignores %s.",
			strings.Join(ignored, ", ")))
	}
	return c, nil
}

// write is the configuration of the fastest candidate.
func (s *search) write(ranked []evaluated) (profile.Config, error) {
	best := ranked[0]
	d := newDraft(s.in, s.pool)
	setMemory(d, s.in, s.pool)
	s.writeBatches(d, best, ranked)
	s.writeKernels(d, best, ranked)
	d.warn(s.pinnedWarning(best))
	s.writeData(d, best)
	s.writeDevices(d, best)
	planOptimizer(d, s.in)
	planRule(d, s.in)
	run, err := s.writeRun(d, best)
	if err != nil {
		return profile.Config{}, err
	}
	s.writeTimes(d, best, run)
	d.Arithmetic = s.arithmetic(d, best)
	published := s.published(d, best, ranked)
	d.ByHand = s.byHand(d, best, published)
	d.Alternatives = []profile.Alternative{}
	if !s.in.WithoutAlternatives {
		if published != nil {
			d.Alternatives = append(d.Alternatives, *published)
		}
		s.writeAlternatives(d, best, ranked)
	}
	s.warnings(d, run.times())
	unlike, err := s.unlikeWarning(d, best)
	if err != nil {
		return profile.Config{}, err
	}
	d.warn(unlike)
	return d.finish()
}

// writeBatches decides how many clips are computed at once, and how a step is made of them.
func (s *search) writeBatches(d *draft, f evaluated, ranked []evaluated) {
	o, b, micro := s.in.Options, f.chosen, *f.byTrainer().figures.MicroBatch
	d.TargetBatchSize, d.DeviceCount = o.TargetBatchSize, s.pool.count
	d.because("target_batch_size", "asked for")
	d.because("device_count", s.pool.reason)
	d.PerDeviceTrainBatchSize, d.GradientAccumulationSteps = micro, s.perDevice/micro
	d.MicroBatching, d.LengthHandling, d.MicroBatchSize = b.microBatching, b.order, micro
	d.MicroBatches = []profile.MicroBatch{{Clips: micro, Seconds: s.clips.longest()}}
	d.MicroBatchOverheadS = math.Round(100*f.throughput.micro.OverheadS) / 100
	d.MicroBatchHostS = math.Round(100*f.throughput.micro.HostS) / 100
	if b.microBatching == memoryMicro {
		d.MicroBatchSize = f.memory.Largest(s.clips.longest())
		d.MicroBatches = slices.Compact([]profile.MicroBatch{
			profile.MicroBatch(b.figures.Longest), profile.MicroBatch(b.figures.Largest)})
		d.Unguarded = s.unguarded(f, unguarded(ranked))
	}
	peak := s.peak(f, d.MicroBatchSize)
	d.PredictedBytes, d.MemoryParts, d.BudgetBytes = peak.Bytes, peak.Parts, int64(s.budget.bytes)
	d.ModelMemoryBytes = s.modelBytes()
	d.PredictedHighBytes = f.traced.HighBytes
	d.Warnings = append(d.Warnings, f.traced.Warnings()...)
	s.explainBatches(d, f, ranked)
	d.warn(effectiveWarning(o.TargetBatchSize, micro, d.GradientAccumulationSteps, d.DeviceCount))
	d.warn(fewClipsWarning(s.rows(), s.clips.count, d.Effective()))
}

func (s *search) modelBytes() int64 {
	m := s.in.Model
	return m.ParameterBytes + m.GradientBytes +
		m.OptimizerBytes[optimizers[s.in.Options.Optimizer].state]
}

func (s *search) explainBatches(d *draft, f evaluated, ranked []evaluated) {
	rows, longest, share := s.rows(), s.clips.longest(),
		100*float64(d.PredictedBytes)/float64(d.BudgetBytes)
	d.because("per_device_train_batch_size", s.batchReason(d, f, ranked)+" (by a traced step)")
	d.because("gradient_accumulation_steps", fmt.Sprintf("%d / (%d × %s); effective batch %d",
		s.in.Options.TargetBatchSize, d.PerDeviceTrainBatchSize,
		fault.Plural(d.DeviceCount, "device"), d.Effective()))
	d.because("micro_batch_size", fmt.Sprintf("that many %s of %s, the longest, fit at once",
		rows.Nouns(), rows.Length(longest)))
	d.because("micro_batch_overhead_s",
		fmt.Sprintf("what the GPU takes for a micro-batch besides its padded %s, by the same time "+
			"model; the guard splits by it", rows.Content()))
	d.because("micro_batch_host_s",
		fmt.Sprintf("as much %s takes the GPU as long as the CPU needs to launch a micro-batch's "+
			"kernels: it takes no less", rows.Content()))
	d.because("model_memory_bytes",
		fmt.Sprintf("parameters, gradients and optimizer state (%d of %d parameters trained)",
			s.in.Model.TrainableParameters, s.in.Model.TotalParameters))
	d.because("predicted_bytes",
		fmt.Sprintf("%d × %s, the longest %s, by a traced step: %.0f %% of what the plan may use",
			d.MicroBatchSize, rows.Length(longest), rows.Nouns(), share))
	d.because("budget_bytes", fmt.Sprintf("%s × %v on %s", units.Size(s.pool.planned),
		s.in.Options.SafetyMargin, s.pool.where()))
	plain := f.oneSize(batching.Random)
	d.because("micro_batching", s.microBatchReason(f))
	even := f.chosen.order == batching.Stratified
	if f.chosen.order == plain.order || even {
		d.compareLast(plain, f)
	}
	d.because("length_handling", s.orderReason(f)+s.groupingGain(ranked))
	switch {
	case even:
		d.comparedWith("random order, sized by memory", fmt.Sprintf("%.2f× faster",
			f.randomSplit().epoch.Likely/f.chosen.epoch.Likely))
	case f.chosen.order != plain.order:
		d.compareLast(plain, f)
	}
	s.writeEvalBatch(d, f)
	reason := "no GPU to move predictions from"
	if !s.pool.onCPU() {
		steps := evalAccumulation
		d.EvalAccumulationSteps = &steps
		reason = fmt.Sprintf("predictions leave the GPU every %d batches; else those of the "+
			"whole evaluation stay there", steps)
	}
	d.because("eval_accumulation_steps", reason)
}

const evalAccumulation = 16

func (s *search) microBatchReason(f evaluated) string {
	withRule, rows := s.withRule(), s.rows()
	if reason := withRule.unsplit(f); reason != "" {
		return reason
	}
	if split := withRule.choose(f); s.ruleMissing() && split.microBatching == memoryMicro {
		return fmt.Sprintf("%s, so that batches stay the Trainer's; with it the guard would "+
			"split them by length and memory: %.2f× faster, %.1f %% padding instead of %.1f %%",
			s.unsplit(f), f.chosen.epoch.Likely/split.epoch.Likely, 100*split.figures.Padding,
			100*f.chosen.figures.Padding)
	}
	if f.chosen.microBatching == fixedMicro && s.in.Options.Preset == Speed {
		return "one size is as fast here as other splits"
	}
	if f.chosen.microBatching == fixedMicro {
		return "one size is as fast here: other splits gain less than 3 %"
	}
	if f.chosen.shares == nil && f.memory.Largest(s.clips.longest()) >= s.perDevice {
		return fmt.Sprintf("the %s of a device's share of a step fit at once, also of the "+
			"longest; the guard splits where that saves padding: %.1f %% instead of %.1f %%",
			rows.Count(s.perDevice), 100*f.chosen.figures.Padding,
			100*f.oneSize(batching.Random).figures.Padding)
	}
	return fmt.Sprintf("the guard splits each step of %d by length and predicted memory: short "+
		"%s form larger micro-batches (up to %d of %s, %d of %s), and %.1f %% are padding "+
		"instead of %.1f %%",
		s.perDevice, rows.Nouns(), f.memory.Largest(s.clips.longest()),
		rows.Length(s.clips.longest()), f.memory.Largest(s.clips.mean()),
		rows.Length(s.clips.mean()),
		100*f.chosen.figures.Padding, 100*f.oneSize(batching.Random).figures.Padding)
}

func (s *search) orderReason(f evaluated) string {
	b := f.chosen
	switch {
	case s.in.Options.LengthHandling == b.order:
		return "asked for"
	case s.in.Options.LengthHandling != "":
		return fmt.Sprintf("%s steps were asked for, and the guard does not make them: %s",
			s.in.Options.LengthHandling, cmp.Or(s.unsplit(f), "results depend on padding"))
	case s.clips.fixed > 0:
		return fmt.Sprintf("the model pads every %s to %s: their order changes nothing",
			s.rows().Noun(), s.rows().Length(s.clips.fixed))
	case b.order == batching.Stratified:
		return fmt.Sprintf("each step has as many %s of every length as any other, in groups of "+
			"neighbours: %.1f %% of what is computed is padding, %.1f %% in random order, and a "+
			"model learns as well", s.rows().Nouns(), 100*b.figures.Padding,
			100*f.randomSplit().figures.Padding)
	case s.in.Options.Preset == Speed && b.steps >= fewSteps && b.order == batching.Random:
		return "preset speed: random order is the fastest here, so that it is kept, as with " +
			"preset balanced"
	case s.in.Options.Preset == Speed && b.steps >= fewSteps:
		return fmt.Sprintf("preset speed: the fastest order; %.1f %% of what is computed is "+
			"padding, %.1f %% in random order, from which a model may learn a little faster",
			100*b.figures.Padding, 100*f.oneSize(batching.Random).figures.Padding)
	case b.steps < fewSteps:
		return fmt.Sprintf("%s an epoch are too few to sort by length without losing randomness",
			fault.Plural(b.steps, "step"))
	case b.order == batching.Random:
		return "a model learns best from randomly drawn steps; the alternatives show what " +
			"grouping by length would gain"
	}
	return fmt.Sprintf("%.1f %% of what is computed is padding, %.1f %% in random order; from "+
		"steps of similar %s a model may learn a little more slowly",
		100*b.figures.Padding, 100*f.oneSize(batching.Random).figures.Padding, s.rows().Nouns())
}

// randomSplit are the batches of random order that the guard splits.
func (f evaluated) randomSplit() batches {
	return f.all[slices.IndexFunc(f.all, func(b batches) bool {
		return b.order == batching.Random && b.microBatching == memoryMicro
	})]
}

// compareLast holds the last decision against the Trainer's default.
func (d *draft) compareLast(plain batches, f evaluated) {
	if f.chosen.order == plain.order && f.chosen.microBatching == plain.microBatching {
		return
	}
	d.comparedWith("random order, one size", fmt.Sprintf("%.2f× faster",
		plain.epoch.Likely/f.chosen.epoch.Likely))
}

// epochSeconds is the range of an epoch with the loader's part.
func (s *search) epochSeconds(d *draft, b batches) profile.Range {
	workers := d.DataloaderNumWorkers
	return estimate.WithLoader(b.epoch, s.loading(s.clips.seconds(), workers), workers)
}

// warnings are what the user should know before starting.
func (s *search) warnings(d *draft, saves int) {
	if s.untimed != "" {
		d.warn("Times are not known: " + s.untimed + ".")
	}
	if !s.mixing && s.clips.fixed == 0 {
		d.warn("The model's feature encoder normalizes over time, so that results depend on " +
			"padding: the guard keeps the padding of each step, and only steps of similar length " +
			"save time.")
	}
	free, checkpoint := s.in.Options.DiskFreeBytes, s.checkpointBytes()
	if free != nil && *free < int64(saves)*checkpoint {
		d.warn(fmt.Sprintf("%s of about %s each take more than the %s that are free on the disk "+
			"of the working folder: set save_total_limit=1, save_only_model, or an output_dir on "+
			"another disk.", fault.Plural(saves, "checkpoint"), units.Size(checkpoint),
			units.Size(*free)))
	}
	if s.in.Dataset.SampleCount == 1 {
		d.warn(fmt.Sprintf("The dataset has %s: this tests the setup; it does not train a useful "+
			"model.", s.rows().Count(1)))
	}
}
