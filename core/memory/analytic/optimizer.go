package analytic

import (
	"maps"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// optimizerRule is what an optimizer takes: its state in the words of profile.Model, and the memory of its step beside
// parameters, gradients and state.
type optimizerRule struct {
	name   string
	state  string // key of profile.Model.OptimizerBytes
	copies int64  // float32 copies of every trained parameter during the step
	widest int64  // float32 copies of the largest one
	factor float64
	why    string
}

// optimizerRules by the Trainer's names.
var optimizerRules = map[string]optimizerRule{
	"adamw_torch":       {state: "adamw", copies: 1, why: "torch.optim.adam, foreach: the square roots of all second moments at once"},
	"adamw_torch_fused": {state: "adamw", why: "one kernel, in place"},
	"adamw_8bit":        {state: "adamw_8bit", factor: 8.0 / 256 / 2, why: "bitsandbytes: two bytes an element and a float32 scale per 256 for each moment; in place"},
	"adamw_bnb_8bit":    {state: "adamw_8bit", factor: 8.0 / 256 / 2, why: "bitsandbytes: two bytes an element and a float32 scale per 256 for each moment; in place"},
	"adafactor":         {state: "adafactor", widest: 2, why: "transformers.optimization.Adafactor: the update and one step of it, one parameter at a time"},
	"sgd":               {state: "sgd", why: "in place"},
}

// Optimizers are the names that a request may give.
func Optimizers() []string { return slices.Sorted(maps.Keys(optimizerRules)) }

func findOptimizer(name string) (optimizerRule, error) {
	if name == "" {
		name = "adamw_torch"
	}
	rule, known := optimizerRules[name]
	if !known {
		return rule, fault.New(fault.InvalidArgument, "choose one of "+strings.Join(Optimizers(), ", "),
			"the memory of optimizer %q is not known", fault.Shorten(name))
	}
	rule.name = name
	return rule, nil
}

// stateBytes is what the optimizer keeps between steps.
func (o optimizerRule) stateBytes(m profile.Model) int64 {
	state := m.OptimizerBytes[o.state]
	return state + int64(o.factor*float64(state))
}

// stepBytes is what a step takes for the moment.
func (o optimizerRule) stepBytes(m profile.Model, widest int64) int64 {
	return o.copies*m.GradientBytes + o.widest*widest
}
