package plan

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/sharding"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// fewLong is the share of clips that a plan may leave out by itself when they fit in no way.
const fewLong = 0.01

// shortened is the search without the few clips that fit in no way, if leaving them out helps.
func (s *search) shortened() (*search, error) {
	most := 0
	for _, w := range s.ways() {
		memory, err := s.table(w, s.traced(w))
		if err != nil {
			return nil, err
		}
		most = max(most, s.audio.fits(memory))
	}
	if most == 0 || float64(len(s.audio.sorted)-most) > fewLong*float64(len(s.audio.sorted)) {
		return nil, nil
	}
	shorter := *s
	cut, err := s.audio.cut(s.audio.sorted[most-1])
	shorter.audio = cut
	return &shorter, err
}

// infeasible is the error of a training that fits in no way, with the ways out.
func (s *search) infeasible() error {
	where, budget := s.pool.where(), float64(s.place.Budget)
	what := fmt.Sprintf("a micro-batch of one clip of %.4g s does not fit into %s of %s (%s × %v)",
		s.audio.longest(), gb(budget), where, gb(s.pool.planned), s.in.Options.SafetyMargin)
	hint := "leave out or cut the longest clips (max_length_s), freeze parts of the model, or take a larger GPU"
	if s.ask != nil {
		q := s.question(s.ways()[len(s.ways())-1], 1)
		if bytes, _, err := s.ask.Need(q, s.place, true); err == nil {
			what += fmt.Sprintf(": it takes %s", gb(float64(bytes)))
		}
		if ways := s.waysOut(); len(ways) > 0 {
			hint = "what would make it fit, in the order to try:\n  · " + strings.Join(ways, "\n  · ")
		}
	}
	return fault.New(fault.Infeasible, hint, "%s", what)
}

// waysOut are what would make it fit, in the order in which one would try them, each with what it takes.
func (s *search) waysOut() (out []string) {
	if taken := s.takenByOthers(); taken != "" {
		out = append(out, taken)
	}
	asked := estimate.Setup{Frozen: s.in.Options.FreezeFeatureEncoder, Optimizer: optimizers[s.in.Options.Optimizer].name}
	ways, err := s.ask.Ways(estimate.Misfit{Place: s.place, Asked: asked, Precision: s.precisionOn, Share: s.share,
		Longest: s.audio.longest(), Margin: s.in.Options.SafetyMargin, Cards: s.in.Cards})
	if err != nil {
		return out
	}
	for _, each := range ways {
		verdict := "fits"
		if !each.Fits {
			verdict = "still too much"
		}
		out = append(out, fmt.Sprintf("%s: %s, %s", each.What, gb(float64(each.PeakBytes)), verdict))
	}
	return append(out, s.shared()...)
}

// shared is what a device needs when several hold the model's state together, with gradient checkpointing, at one clip.
func (s *search) shared() (out []string) {
	if s.pool.onCPU() {
		return nil
	}
	devices := max(2, s.pool.count)
	alone := s.place
	alone.Devices = 1
	w := way{s.ways()[0].precision, true, optimizers[s.in.Options.Optimizer].name}
	bytes, _, err := s.ask.Need(s.question(w, 1), alone, true)
	if err != nil {
		return nil
	}
	for _, strategy := range []string{"zero2", "zero3", "fsdp"} {
		more, err := sharding.Difference(s.sharing(strategy, devices, w))
		if err != nil {
			continue
		}
		needed, verdict := int64(bytes)+more, "still too much"
		if needed <= int64(s.place.Budget) {
			verdict = "fits"
		}
		out = append(out, fmt.Sprintf("%s over %d of them: about %s of each, %s", sharedNames[strategy], devices, gb(float64(needed)), verdict))
	}
	return out
}

var sharedNames = map[string]string{"zero2": "DeepSpeed ZeRO-2", "zero3": "DeepSpeed ZeRO-3", "fsdp": "FSDP"}

func (s *search) sharing(strategy string, devices int, w way) sharding.Request {
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

// takenByOthers speaks when a card would have room if nothing else used it.
func (s *search) takenByOthers() string {
	if s.pool.onCPU() {
		return ""
	}
	g := s.pool.gpus[s.pool.tightest]
	whole := float64(g.MemoryTotalBytes)
	if s.pool.planned >= whole {
		return ""
	}
	return fmt.Sprintf("end what else uses %s: %s of its %s are taken", s.pool.where(), gb(whole-s.pool.planned), gb(whole))
}
