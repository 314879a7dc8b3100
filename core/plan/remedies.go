package plan

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// fewLong is the share of clips that a plan may leave out by itself when they fit in no way.
const fewLong = 0.01

// shortened is the search without the few clips that fit in no way, if leaving them out helps.
func (s *search) shortened() (*search, error) {
	most := 0
	for _, w := range s.candidates() {
		memory, err := s.largestByLength(w, s.traced(w))
		if err != nil {
			return nil, err
		}
		most = max(most, s.clips.fits(memory))
	}
	if most == 0 || float64(len(s.clips.sorted)-most) > fewLong*float64(len(s.clips.sorted)) {
		return nil, nil
	}
	shorter := *s
	cut, err := s.clips.upTo(s.clips.sorted[most-1])
	shorter.clips = cut
	return &shorter, err
}

// infeasible is the error of a training that fits in no way, with the remedies.
func (s *search) infeasible() error {
	where, budget := s.pool.where(), float64(s.budget.Bytes)
	what := fmt.Sprintf("a micro-batch of one %s of %s does not fit into %s of %s (%s × %v)",
		s.rows().Noun(), s.rows().Length(s.clips.longest()), units.Size(budget), where, units.Size(s.pool.planned), s.in.Options.SafetyMargin)
	hint := fmt.Sprintf("leave out or split the longest %s (max_length_s), freeze parts of the model, or take a larger GPU", s.rows().Nouns())
	if s.estimator != nil {
		q := s.question(s.candidates()[len(s.candidates())-1], 1)
		if bytes, _, err := s.estimator.Need(q, s.budget, true); err == nil {
			what += fmt.Sprintf(": it takes %s", units.Size(float64(bytes)))
		}
		if remedies := s.remedies(); len(remedies) > 0 {
			hint = "what would make it fit, in the order to try:\n  · " + strings.Join(remedies, "\n  · ")
		}
	}
	return fault.New(fault.Infeasible, hint, "%s", what)
}

// remedies are what would make it fit, in the order in which one would try them, each with what it takes.
func (s *search) remedies() (out []string) {
	if taken := s.usedByOthers(); taken != "" {
		out = append(out, taken)
	}
	remedies, err := s.estimator.Remedies(s.shortfall())
	if err != nil {
		return out
	}
	for _, each := range remedies {
		verdict := "fits"
		if !each.Fits {
			verdict = "still too much"
		}
		out = append(out, fmt.Sprintf("%s: %s, %s", each.What, units.Size(float64(each.PeakBytes)), verdict))
	}
	return append(out, s.shardedRemedies()...)
}

// shortfall is the training that does not fit.
func (s *search) shortfall() estimate.Shortfall {
	o := s.in.Options
	asked := estimate.Setup{Frozen: o.FreezeFeatureEncoder, Optimizer: optimizers[o.Optimizer].name, Rank: int64(o.LoRARank)}
	return estimate.Shortfall{Budget: s.budget, Asked: asked, Precision: s.precisionOn, Share: s.perDevice,
		Longest: s.clips.longest(), Margin: o.SafetyMargin, Cards: s.in.Cards, Rows: s.rows()}
}

// Remedies are what would make a training fit that Make refuses as Infeasible, in the order in which one would try them. Errors: those of
// Make.
func Remedies(in Inputs) ([]estimate.Remedy, error) {
	options, err := in.Options.Normalized()
	if err != nil {
		return nil, err
	}
	in.Options = options
	s, err := newSearch(in, newPool(in.Hardware, options))
	if err != nil || s.estimator == nil {
		return nil, err
	}
	return s.estimator.Remedies(s.shortfall())
}

// shardedRemedies is what a device needs when several hold the model's state together, with gradient checkpointing, at one clip.
func (s *search) shardedRemedies() (out []string) {
	if s.pool.onCPU() {
		return nil
	}
	devices := max(2, s.pool.count)
	alone := s.budget
	alone.Devices, alone.Shared = 1, nil // what each strategy saves is added below
	w := candidate{s.candidates()[0].precision, profile.CheckpointingOf(true, 1, false), optimizers[s.in.Options.Optimizer].name}
	bytes, _, err := s.estimator.Need(s.question(w, 1), alone, true)
	if err != nil {
		return nil
	}
	for _, strategy := range []string{"zero2", "zero3", "fsdp"} {
		more, err := sharding.Difference(s.shardingRequest(strategy, devices, w))
		if err != nil {
			continue
		}
		needed, verdict := int64(bytes)+more, "still too much"
		if needed <= int64(s.budget.Bytes) {
			verdict = "fits"
		}
		out = append(out, fmt.Sprintf("%s over %d of them: about %s of each, %s", shardingNames[strategy], devices, units.Size(float64(needed)), verdict))
	}
	return out
}

var shardingNames = map[string]string{"zero2": "DeepSpeed ZeRO-2", "zero3": "DeepSpeed ZeRO-3", "fsdp": "FSDP"}

func (s *search) shardingRequest(strategy string, devices int, w candidate) sharding.Request {
	m := s.in.Model
	return sharding.Request{Strategy: strategy, Devices: devices, Precision: w.precision, Parameters: m.TotalParameters, Trainable: m.TrainableParameters,
		ParameterBytes: m.ParameterBytes, GradientBytes: m.GradientBytes, OptimizerBytes: m.OptimizerBytes[optimizers[s.in.Options.Optimizer].state],
		Optimizer: w.optimizer, DeferredSends: true}
}

func (s *search) precisionOn(g profile.GPU) string {
	if s.in.Options.Precision != "" {
		return s.in.Options.Precision
	}
	return estimate.Precision(g)
}

// usedByOthers speaks when a card would have room if nothing else used it.
func (s *search) usedByOthers() string {
	if s.pool.onCPU() {
		return ""
	}
	g := s.pool.gpus[s.pool.tightest]
	whole := float64(g.MemoryTotalBytes)
	if s.pool.planned >= whole {
		return ""
	}
	return fmt.Sprintf("stop what else uses %s: %s of its %s are taken", s.pool.where(), units.Size(whole-s.pool.planned), units.Size(whole))
}
