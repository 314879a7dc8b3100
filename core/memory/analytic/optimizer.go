package analytic

import (
	"maps"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// optimizerRule is what an optimizer takes of the GPU.
type optimizerRule struct {
	name    string
	state   string  // key of profile.Model.OptimizerBytes; "" for float32 copies of the trained parameters
	moment  int64   // how many such copies
	scales  float64 // further state, as a share of it
	copies  int64   // float32 copies of all trained parameters during a step
	largest int64   // float32 copies of the largest one during a step
	why     string

	sweeps    []sweep
	eachAlone bool // parameters are updated one after the other
}

// DefaultOptimizer is the Trainer's default since transformers 5: AdamW in one kernel, whose step needs no temporary lists.
const DefaultOptimizer = "adamw_torch_fused"

// optimizerRules by the Trainer's names, with weight decay for AdamW alone, as plans have it: it takes no memory there.
// Foreach implementations work on all parameters at once.
var optimizerRules = map[string]optimizerRule{
	"adamw_torch":       {state: "adamw", copies: 1, why: "torch/optim/adam.py, foreach: two moments; in a step the square roots of the second", sweeps: foreachAdamW},
	"adamw_torch_fused": {state: "adamw", why: "torch/optim/adam.py, fused: two moments; in a step nothing more", sweeps: fusedAdamW},
	"adamw_8bit":        eightBit,
	"adamw_bnb_8bit":    eightBit,
	"adafactor":         {state: "adafactor", largest: 2, why: "transformers/optimization.py: means of rows and columns; in a step the update of one parameter and its negative", sweeps: adafactor, eachAlone: true},
	"sgd":               {state: "sgd", why: "torch/optim/sgd.py, foreach, without weight decay: in a step nothing more", sweeps: foreachSGD},
	"adagrad":           {moment: 1, copies: 2, why: "torch/optim/adagrad.py, foreach: a sum of squares; in a step gradients times the learning rate and square roots", sweeps: foreachSum},
	"rmsprop":           {moment: 1, copies: 1, why: "torch/optim/rmsprop.py, foreach: a mean of squares; in a step the square roots", sweeps: foreachMean},
}

// eightBit has a float32 scale for each 256 elements of either moment, 2 × 4 B / 256 beside 2 B an element.
var eightBit = optimizerRule{state: "adamw_8bit", scales: 4.0 / 256, why: "bitsandbytes: two moments of a byte an element, and their scales; in a step nothing more", sweeps: eightBitAdamW, eachAlone: true}

// Optimizers are the names that a request may give.
func Optimizers() []string { return slices.Sorted(maps.Keys(optimizerRules)) }

func findOptimizer(name string) (optimizerRule, error) {
	if name == "" {
		name = DefaultOptimizer
	}
	rule, known := optimizerRules[name]
	if !known {
		return rule, fault.New(fault.Unsupported, "choose one of "+strings.Join(Optimizers(), ", "),
			"the memory of optimizer %q is not known", fault.Shorten(name))
	}
	rule.name = name
	return rule, nil
}

// stateBytes is what the optimizer keeps between steps.
func (o optimizerRule) stateBytes(m profile.Model) int64 {
	if o.state == "" {
		return o.moment * m.GradientBytes
	}
	state := m.OptimizerBytes[o.state]
	return state + int64(o.scales*float64(state))
}

// pieces are the tensors of one parameter's state, for a parameter of so many bytes. An equal share stands for means of
// rows and columns, whose sizes are not known here.
func (o optimizerRule) pieces(bytes, share int64) []int64 {
	switch o.state {
	case "adamw":
		return []int64{bytes, bytes}
	case "adamw_8bit":
		return []int64{bytes / 4, bytes / 4, bytes / 256, bytes / 256}
	case "adafactor":
		return []int64{share}
	}
	return slices.Repeat([]int64{bytes}, int(o.moment))
}

// stepBytes is what a step takes for the moment; largest is the size of the largest trained parameter.
func (o optimizerRule) stepBytes(m profile.Model, largest int64) int64 {
	return o.copies*m.GradientBytes + o.largest*largest
}
