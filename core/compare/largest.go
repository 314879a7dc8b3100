package compare

import (
	"cmp"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/model"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// LargestRequest asks which known models can be trained on a GPU. An absent value takes the default of Request.
type LargestRequest struct {
	GPU          string  `json:"gpu"`       // "T4", "A100-40GB"
	Family       string  `json:"family"`    // part of the names to look at: "whisper", "xls-r"; "", all known models
	Seconds      float64 `json:"seconds"`   // the longest clip; 15
	LoRARank     int64   `json:"lora_rank"` // 32
	SafetyMargin float64 `json:"safety_margin"`
	Precision    string  `json:"precision"`
}

// Largest is what each model takes of a GPU at a micro-batch of one clip with gradient checkpointing, the largest first.
type Largest struct {
	GPU         string      `json:"gpu"`
	BudgetBytes uint64      `json:"budget_bytes"`
	Seconds     float64     `json:"seconds"`
	LoRARank    int64       `json:"lora_rank"`
	Models      []Trainable `json:"models"`
}

// Trainable is one model. Sizes are bytes of the GPU, with the context.
type Trainable struct {
	Name       string          `json:"name"`
	Parameters int64           `json:"parameters"`
	Full       estimate.Remedy `json:"full"`      // every parameter, AdamW
	EightBit   estimate.Remedy `json:"eight_bit"` // every parameter, AdamW with 8-bit state
	LoRA       estimate.Remedy `json:"lora"`      // adapters only
}

const usualSeconds = 15

// LargestModels answers for a GPU. Errors: NotFound for an unknown GPU or a family without a model, InvalidArgument.
func LargestModels(r LargestRequest) (Largest, error) {
	card, count, err := gpus.Parse(r.GPU)
	if err != nil {
		return Largest{}, err
	}
	seconds, rank := or(r.Seconds, usualSeconds), or(r.LoRARank, estimate.UsualRank)
	margin := or(r.SafetyMargin, usualMargin)
	if !(margin >= plan.MinSafetyMargin && margin <= plan.MaxSafetyMargin) {
		return Largest{}, fault.New(fault.InvalidArgument, "0.85 keeps 15 % of the memory free", "safety_margin is %v; the range is 0.70 to 0.95", margin)
	}
	if !slices.Contains([]string{"", "fp32", "fp16", "bf16"}, r.Precision) {
		return Largest{}, fault.New(fault.InvalidArgument, "leave it out for the default of the card", "precision is %q; it must be one of fp32, fp16, bf16", fault.Shorten(r.Precision))
	}
	if !positive(seconds) || seconds > maxSeconds {
		return Largest{}, fault.New(fault.InvalidArgument, "give the duration of the longest clip in seconds", "seconds is %v; the range is above 0 to %d", seconds, maxSeconds)
	}
	if rank < 0 {
		return Largest{}, fault.New(fault.InvalidArgument, "leave it out for 32", "lora_rank is %d", rank)
	}
	out := Largest{GPU: card.Key, Seconds: seconds, LoRARank: rank, BudgetBytes: uint64(margin * float64(card.MemoryTotalBytes))}
	for _, name := range model.Names() {
		if !strings.Contains(strings.ToLower(name), strings.ToLower(r.Family)) {
			continue
		}
		if each, known := trainable(r.Precision, name, machine{card: card, count: count}, out); known {
			out.Models = append(out.Models, each)
		}
	}
	if len(out.Models) == 0 {
		return out, fault.New(fault.NotFound, "try whisper, xls-r, wav2vec2, hubert, wavlm or mms", "no known model has %q in its name", fault.Shorten(r.Family))
	}
	slices.SortStableFunc(out.Models, func(a, b Trainable) int { return cmp.Compare(b.Parameters, a.Parameters) })
	return out, nil
}

const maxSeconds = 24 * 3600

// trainable estimates one model; false for those that the analytic estimator does not describe.
func trainable(precision, name string, m machine, asked Largest) (Trainable, bool) {
	estimator := estimate.Of(model.Request{Name: name})
	read, err := estimator.Model(false)
	if err != nil {
		return Trainable{}, false
	}
	q := estimate.Question{Class: estimate.Class(m.card.GPU()), Precision: or(precision, estimate.Precision(m.card.GPU())), Batch: 1, Accumulating: true, Seconds: asked.Seconds}
	if limit := read.LongestSeconds(); limit > 0 {
		q.Seconds = min(q.Seconds, limit)
	}
	out := Trainable{Name: name, Parameters: read.Profile().TotalParameters}
	for _, each := range []struct {
		remedy *estimate.Remedy
		what   string
		estimate.Setup
	}{
		{&out.Full, "every parameter, AdamW", estimate.Setup{Checkpointing: profile.CheckpointingOf(true, 1, false), Optimizer: analytic.DefaultOptimizer}},
		{&out.EightBit, "every parameter, 8-bit AdamW", estimate.Setup{Checkpointing: profile.CheckpointingOf(true, 1, false), Optimizer: estimate.EightBit}},
		{&out.LoRA, "LoRA, AdamW", estimate.Setup{Checkpointing: profile.CheckpointingOf(true, 1, false), Optimizer: analytic.DefaultOptimizer, Rank: asked.LoRARank}},
	} {
		q.Setup = each.Setup
		bytes, fits, err := estimator.Need(q, m.budget(asked.BudgetBytes), true)
		if err != nil {
			return Trainable{}, false
		}
		*each.remedy = estimate.Remedy{What: each.what, PeakBytes: bytes, Fits: fits}
	}
	return out, true
}
