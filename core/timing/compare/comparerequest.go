// Package compare plans one training on many GPUs and says what each would take, from the analytic estimate of memory and
// core/timing: which micro-batch fits, how long an epoch lasts, what it costs.
package compare

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// Request is a training to plan on several GPUs. An absent value takes the default named at the end of its line.
type Request struct {
	Model model.Request `json:"model"`
	Data  timing.Data   `json:"data"`
	GPUs  []string      `json:"gpus"` // "T4", "2xT4", "A100-40GB", at most 256; the whole catalogue

	Prices       map[string]float64            `json:"prices"`       // dollars per hour and GPU by card, before those of the table
	Calibrations map[string]timing.Calibration `json:"calibrations"` // by card, from timing.step

	TargetBatchSize      int      `json:"target_batch_size"`      // clips per optimizer step, 1..65536; 32
	Epochs               float64  `json:"epochs"`                 // above 0 to 10^4; 3
	Precision            string   `json:"precision"`              // "fp32", "fp16" or "bf16"; what suits the card
	Optimizer            string   `json:"optimizer"`              // the Trainer's name; "adamw_torch_fused"
	FreezeFeatureEncoder bool     `json:"freeze_feature_encoder"` //
	LoRARank             int64    `json:"lora_rank"`              // rank of adapters; 0, all parameters train
	Order                string   `json:"order"`                  // "random", or "grouped" as by group_by_length; "random"
	PaddedS              *float64 `json:"padded_s"`               // seconds that all batches of an epoch hold, by another batching strategy
	SafetyMargin         float64  `json:"safety_margin"`          // share of GPU memory to use, 0.70..0.95; 0.85
	LoaderRate           *float64 `json:"loader_rate"`            // seconds of audio that a worker prepares per second; an assumption
	Workers              int      `json:"workers"`                // of the loader for each GPU, 1..1024; 4
}

const (
	usualTarget, mostTarget   = 32, 1 << 16
	usualEpochs, mostEpochs   = 3, 1e4
	usualMargin               = 0.85
	usualWorkers, mostWorkers = 4, 1024
	mostGPUs                  = 256
)

// completed fills in defaults and checks the values. Errors: InvalidArgument.
func (r Request) completed() (Request, error) {
	r.TargetBatchSize, r.Epochs = or(r.TargetBatchSize, usualTarget), or(r.Epochs, usualEpochs)
	r.SafetyMargin, r.Workers = or(r.SafetyMargin, usualMargin), or(r.Workers, usualWorkers)
	r.Optimizer, r.Order = or(r.Optimizer, analytic.DefaultOptimizer), or(r.Order, "random")
	for _, check := range []struct {
		wrong      bool
		hint, text string
		value      any
	}{
		{r.TargetBatchSize < 1 || r.TargetBatchSize > mostTarget, "give 1 to 65536 clips per optimizer step", "target_batch_size is %v", r.TargetBatchSize},
		{!(r.Epochs > 0 && r.Epochs <= mostEpochs), "give a number above 0, at most 10000", "epochs is %v", r.Epochs},
		{!(r.SafetyMargin >= 0.70 && r.SafetyMargin <= 0.95), "0.85 keeps 15 % of the memory free", "safety_margin is %v; the range is 0.70 to 0.95", r.SafetyMargin},
		{r.LoRARank < 0, "give the rank of the adapters, or leave it out", "lora_rank is %v", r.LoRARank},
		{r.Workers < 1 || r.Workers > mostWorkers, "give 1 to 1024", "workers is %v", r.Workers},
		{!slices.Contains([]string{"random", "grouped"}, r.Order), `give "random" or "grouped"`, "order is %q", fault.Shorten(r.Order)},
		{!slices.Contains([]string{"", "fp32", "fp16", "bf16"}, r.Precision), "leave it out for the default of each card", "precision is %q; it must be one of fp32, fp16, bf16", fault.Shorten(r.Precision)},
		{len(r.GPUs) > mostGPUs, "compare fewer at once", "%v GPUs to compare; 256 are the most", len(r.GPUs)},
		{r.PaddedS != nil && !positive(*r.PaddedS), "give the seconds that the batches of an epoch hold", "padded_s is %v", value(r.PaddedS)},
		{r.LoaderRate != nil && !positive(*r.LoaderRate), "give seconds of audio per second and worker", "loader_rate is %v", value(r.LoaderRate)},
	} {
		if check.wrong {
			return r, fault.New(fault.InvalidArgument, check.hint, check.text, check.value)
		}
	}
	if !slices.Contains(analytic.Optimizers(), r.Optimizer) {
		return r, fault.New(fault.Unsupported, "choose one of adamw_torch_fused, adamw_torch, adamw_bnb_8bit, adafactor, sgd", "the memory of optimizer %q is not known", fault.Shorten(r.Optimizer))
	}
	return r, nil
}

func or[T comparable](given, otherwise T) T {
	var zero T
	if given == zero {
		return otherwise
	}
	return given
}

// positive says whether seconds or a rate can be: between numbers beyond all that are met, whose ratios are finite.
func positive(x float64) bool { return x >= 1e-9 && x <= 1e15 }

func value(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// machine is one row's hardware.
type machine struct {
	card  gpus.Entry
	count int
}

// machines reads the names. Errors: NotFound with the closest names, InvalidArgument for a count.
func (r Request) machines() ([]machine, error) {
	var out []machine
	for _, name := range r.GPUs {
		card, count, err := gpus.Parse(name)
		if err != nil {
			return nil, err
		}
		out = append(out, machine{card, count})
	}
	if len(r.GPUs) == 0 {
		for _, card := range gpus.All() {
			out = append(out, machine{card, 1})
		}
	}
	return out, nil
}

// byCard reads a table whose keys name cards in any spelling.
func byCard[T any](given map[string]T) (map[string]T, error) {
	out := make(map[string]T, len(given))
	for name, v := range given {
		card, _, err := gpus.Parse(name)
		if err != nil {
			return nil, err
		}
		out[card.Key] = v
	}
	return out, nil
}

func (r Request) prices() (map[string]timing.Price, error) {
	given, err := byCard(r.Prices)
	if err != nil {
		return nil, err
	}
	out := make(map[string]timing.Price, len(given))
	for _, p := range timing.Prices() {
		out[p.GPU] = p
	}
	for key, hour := range given {
		if out[key], err = timing.GivenPrice(key, hour); err != nil {
			return nil, err
		}
	}
	return out, nil
}
