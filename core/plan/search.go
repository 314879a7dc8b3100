package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// candidate is one choice of settings, whatever the batches.
type candidate struct {
	precision     string
	checkpointing profile.Checkpointing
	optimizer     string // the Trainer's name
}

// search looks for the least predicted time per epoch among the candidates and batches that fit.
type search struct {
	in   Inputs
	pool pool
	// whether candidates that were not traced are judged by those that were: to find what to trace
	// next
	guesses bool
	// of each kind of GPU; none where the figures of one are not published
	timers    []*estimate.Timer
	clips     durations
	perDevice int // clips of one device in a step
	budget    budget
	// false where results depend on padding, so that only clips of similar length can share a
	// step's cut
	mixing  bool
	untimed string // why times are not known; "" where they are
	// what the published rule would take; nil where it finds no plan
	formula *profile.Config
}

// budget is where a micro-batch is to fit.
type budget struct {
	gpu   profile.GPU
	bytes uint64 // of this one, context included
	// what sharing the model's state adds to it, or saves; absent where each GPU holds all
	shared *int64
}

// evaluated is a candidate with the batches that it trains in.
type evaluated struct {
	candidate
	traced     *Traced
	guessed    bool // by the traces of others
	memory     batching.Limits
	throughput throughput
	buckets    []batching.Bucket
	simulated  int       // clips
	fixed      []batches // random order, of each size that one for all may have
	all        []batches
	chosen     batches
	pinned     float64 // bytes of host memory of all devices, for offloaded checkpoints
}

// batches is one strategy of steps and micro-batches, with what an epoch of it takes.
type batches struct {
	order         string // one of LengthHandlings
	microBatching string // "fixed" or "memory"
	figures       batching.Figures
	epoch         profile.Range // seconds, without the loader
	costS         float64
	steps         int
	microBatches  float64       // of a device in a step, on average
	shares        []int         // clips of each device in a step, by speed; nil: evenly
	evenly        profile.Range // the epoch with even shares, where there are others
}

// Names of how micro-batches are made.
const (
	fixedMicro  = "fixed"
	memoryMicro = "memory"
)

func newSearch(in Inputs) (*search, error) {
	p := newPool(in.Hardware, in.Options)
	s := &search{in: in, pool: p, mixing: true,
		perDevice: shareOf(in.Options.TargetBatchSize, p.count)}
	s.budget.bytes = uint64(p.planned * in.Options.SafetyMargin)
	fixed := 0.0
	for _, t := range in.Traced {
		fixed, s.mixing = max(fixed, t.FixedS), s.mixing && !t.OverTime
		if in.Options.LoRARank > 0 && !in.Options.Adapted && len(t.Work) > 0 {
			// a trace added the adapters that train
			s.in.Model = WithAdapters(s.in.Model, t.Work[0].TrainedParameters)
		}
	}
	if !p.onCPU() {
		s.budget.gpu = p.gpus[p.tightest]
		if err := s.readTimers(); err != nil {
			return nil, err
		}
	}
	if err := s.shardState(); err != nil {
		return nil, err
	}
	s.formula = s.byPublishedRule()
	var err error
	s.clips, err = readDurations(in, fixed)
	return s, err
}

// WithAdapters is a model that is frozen but for adapters with so many parameters. They are in
// float32, whatever the model is in.
func WithAdapters(m profile.Model, trained int64) profile.Model {
	share := float64(trained) / float64(max(1, m.TrainableParameters))
	state := make(map[string]int64, len(m.OptimizerBytes))
	for name, bytes := range m.OptimizerBytes {
		state[name] = int64(share * float64(bytes))
	}
	state["adamw"] = 2 * gradientBytes * trained
	m.TrainableParameters, m.GradientBytes, m.OptimizerBytes = trained, gradientBytes*trained, state
	return m
}

// sharded reports whether the GPUs divide the model's state between them: then the guard cannot cut
// batches.
func (s *search) sharded() bool { return s.budget.shared != nil }

// shardState works out what a GPU holds less when several hold the model's state together.
func (s *search) shardState() error {
	strategy := s.in.Options.Distributed
	if strategy == "" || strategy == "ddp" {
		return nil
	}
	if s.pool.count < 2 {
		return fault.New(fault.InvalidArgument,
			"leave distributed out, or plan for several GPUs: gpu=\"2xT4\", device_count=2",
			"distributed is %s, and there is one device", strategy)
	}
	more, err := sharding.Difference(s.shardingRequest(strategy, s.pool.count, s.candidates()[0]))
	s.budget.shared = &more
	return err
}

// beside is what a process holds besides its allocator's memory and the context, in bytes: with
// several GPUs DDP's buckets, a second copy of the gradients; or what another engine adds or saves.
func (s *search) beside() int64 {
	switch {
	case s.sharded():
		return *s.budget.shared
	case s.pool.count > 1 && !s.pool.onCPU():
		return gradientBytes * s.in.Model.TrainableParameters
	}
	return 0
}

const gradientBytes = 4 // of a parameter in float32

// candidates are those that options and devices allow, in the order in which they are traced,
// except checkpointing of some layers and offloading, which are opt-in.
func (s *search) candidates() (all []candidate) {
	o := s.in.Options
	every := profile.CheckpointingOf(true, profile.Or(o.EveryNLayers, 1),
		profile.Or(o.OffloadCheckpoints, false))
	allowed := []profile.Checkpointing{{}, every}
	switch {
	case !profile.Or(o.GradientCheckpointing, true):
		allowed = allowed[:1]
	case o.GradientCheckpointing != nil || o.EveryNLayers != nil || every.Offload:
		allowed = allowed[1:]
	}
	for _, precision := range s.precisions() {
		for _, checkpointing := range allowed {
			all = append(all, candidate{precision, checkpointing, optimizers[o.Optimizer].name})
		}
	}
	return all
}

// precisions returns the one that suits every device and, without tensor cores, also the one that
// only saves memory.
func (s *search) precisions() []string {
	if precision := s.in.Options.Precision; precision != "" {
		return []string{precision}
	}
	fp16, bf16, _ := mixedPrecision(s.pool.gpus, s.in.Options.Preset)
	switch {
	case bf16:
		return []string{"bf16"}
	case !fp16:
		return []string{"fp32"}
	case timing.Capability(oldest(s.pool.gpus)) < tensorCores:
		return []string{"fp32", "fp16"}
	}
	return []string{"fp16"}
}

// run evaluates every candidate, the fastest first. Nothing fits: none.
func (s *search) run() ([]evaluated, error) {
	var all []evaluated
	for _, w := range slices.Concat(s.candidates(), s.partly(), s.offloaded()) {
		f, fits, err := s.evaluate(w)
		if err != nil {
			return nil, err
		}
		if fits {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b evaluated) int {
		return cmp.Compare(a.rank(a.chosen), b.rank(b.chosen))
	})
	return all, nil
}

// rank is what candidates are compared by: the time of an epoch of some batches, a little longer
// where settings are not the usual ones, which must gain something, and shorter where it is
// guessed, as larger micro-batches may also compute faster.
func (f evaluated) rank(b batches) float64 {
	switch {
	case f.checkpointing.Partly() || f.checkpointing.Offload:
		return b.epoch.Likely * (1 + aboutAsFast)
	case f.guessed:
		return b.epoch.Likely * (1 - guessedFaster)
	}
	return b.epoch.Likely
}

// evaluate finds the batches of a candidate, if the longest clip fits.
func (s *search) evaluate(w candidate) (f evaluated, fits bool, err error) {
	f = evaluated{candidate: w, traced: s.traced(w)}
	if f.traced == nil && s.guesses {
		f.traced, f.guessed = s.guess(w), true
	}
	if f.traced == nil {
		return f, false, nil
	}
	f.memory = capped(f.traced.Memory, s.perDevice)
	if s.clips.fits(f.memory) < len(s.clips.sorted) {
		return f, false, nil
	}
	if f.throughput, err = s.throughput(f); err != nil {
		return f, false, err
	}
	if err = s.compare(&f); err != nil {
		return f, false, err
	}
	f.chosen = s.choose(f)
	f.pinned = s.pinnedBytes(f)
	return f, s.fitsHost(f), nil
}

// traced is what was traced of a candidate for this budget.
func (s *search) traced(w candidate) *Traced {
	for i, t := range s.in.Traced {
		if w == t.candidate() && t.BudgetBytes == int64(s.budget.bytes) {
			return &s.in.Traced[i]
		}
	}
	return nil
}

func capped(m batching.Limits, limit int) batching.Limits {
	out := slices.Clone(m)
	for i := range out {
		out[i].Batch = min(out[i].Batch, limit)
	}
	return out
}

// compare simulates an epoch with each strategy of batches.
func (s *search) compare(f *evaluated) error {
	sample, options := s.epoch(*f)
	options.Sizes = s.sizes(*f)
	c, err := batching.Compare(sample, options)
	if err != nil {
		return err
	}
	bySpeed := c
	if options.Shares = s.shares(*f); options.Shares != nil {
		if bySpeed, err = batching.Compare(sample, options); err != nil {
			return err
		}
	}
	f.buckets, f.simulated = c.Buckets, len(sample)
	made := func(figures batching.Figures, microBatching string) batches {
		return s.batchesOf(*f, figures, microBatching)
	}
	oneSize := map[string][]batches{} // by order, with even shares
	for i, figures := range c.Strategies {
		fixed := figures.Split == batching.Fixed
		if fixed && figures.Order != batching.Bucketed {
			oneSize[figures.Order] = append(oneSize[figures.Order], made(figures, fixedMicro))
			continue
		}
		if fixed == s.mixing {
			// the guard takes the cheapest cut; where padding must stay, one size for the longest
			// of the step
			continue
		}
		b := made(figures, memoryMicro)
		if shared := made(bySpeed.Strategies[i], memoryMicro); (1+aboutAsFast)*
			shared.epoch.Likely < b.epoch.Likely {
			shared.shares, shared.evenly = options.Shares, b.epoch
			b = shared
		}
		f.all = append(f.all, b)
	}
	f.fixed = oneSize[batching.Random]
	f.all = append([]batches{s.largestAsFast(f.candidate, f.fixed),
		s.largestAsFast(f.candidate, oneSize["grouped"])}, f.all...)
	return nil
}

// UsualBuckets are ranges of length that steps of clips of similar length are made of.
const UsualBuckets = 30

// choose takes steps of all lengths, random or stratified, cut as is fastest, but for preset speed:
// from steps of clips of similar length a model may learn more slowly (docs/batching.md), and the
// cut saves most of what they save. Where padding must stay, so that nothing else saves time, steps
// of one length are taken when they gain much.
func (s *search) choose(f evaluated) batches {
	if order := s.in.Options.LengthHandling; order != "" {
		if b := s.fastestOf(f, order); b != nil {
			return *b
		}
	}
	random := s.fastestOf(f, batching.Random)
	if even := s.stratified(f, *random); even != nil {
		random = even
	}
	if s.in.Options.Preset == Speed && random.steps >= fewSteps {
		return s.fastestOfAll(f, *random)
	}
	similar := s.fastestOf(f, batching.Bucketed)
	if !s.mixing && similar != nil && similar.steps >= fewSteps &&
		random.epoch.Likely >= (1+muchFaster)*similar.epoch.Likely {
		return *similar
	}
	return *random
}

// stratified are the batches of stratified steps where those are faster than random ones, and so
// much faster than one size that the guard is to split steps; else nil.
func (s *search) stratified(f evaluated, random batches) *batches {
	b, tolerance := s.fastestOf(f, batching.Stratified), 1.0
	if random.microBatching == fixedMicro {
		tolerance += aboutAsFast
	}
	if b == nil || b.steps < fewSteps || s.in.Options.Streamed ||
		b.epoch.Likely*tolerance >= random.epoch.Likely {
		return nil
	}
	return b
}

// fastestOfAll is the fastest strategy of any order: what preset speed takes.
func (s *search) fastestOfAll(f evaluated, best batches) batches {
	for _, order := range []string{"grouped", batching.Bucketed} {
		if s.in.Options.Streamed && order != batching.Bucketed {
			continue
		}
		if b := s.fastestOf(f, order); b != nil && b.epoch.Likely < best.epoch.Likely {
			best = *b
		}
	}
	return best
}

// unsplit explains why the guard splits no step, whatever that would gain; "" where it may.
func (s *search) unsplit(f evaluated) string {
	switch {
	case s.sharded():
		return "the guard cannot split the steps of a sharded model"
	case f.traced.OneLength:
		return "the memory of batches of other lengths is not known"
	case s.ruleMissing():
		return fmt.Sprintf("the loss of %s is not in the table of known losses, and rule= was "+
			"not given", s.in.Model.ClassOrName())
	}
	return ""
}

// ruleMissing reports whether it is unknown what the loss divides by, and so how to weigh a
// micro-batch.
func (s *search) ruleMissing() bool { return s.in.Options.LossUnknown && s.in.Options.Rule == "" }

// withRule is the same search where the rule is known.
func (s *search) withRule() *search {
	with := *s
	with.in.Options.LossUnknown = false
	return &with
}

// fastestOf is the fastest strategy of an order, one size where that is about as fast; nil without
// one.
func (s *search) fastestOf(f evaluated, order string) (chosen *batches) {
	tolerance := 1 + aboutAsFast
	if s.in.Options.Preset == Speed {
		tolerance = 1
	}
	for i, b := range f.all {
		cut := b.microBatching == memoryMicro
		if b.order != order || cut && s.unsplit(f) != "" {
			continue
		}
		if chosen == nil || cut && b.epoch.Likely*tolerance < chosen.epoch.Likely ||
			!cut && b.epoch.Likely <= tolerance*chosen.epoch.Likely {
			chosen = &f.all[i]
		}
	}
	return chosen
}

const (
	aboutAsFast   = 0.03
	muchFaster    = 0.15
	guessedFaster = 0.2
	fewSteps      = 20 // an epoch with fewer keeps its order random
)
