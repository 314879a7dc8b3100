package plan

import (
	"fmt"
	"math"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	warmupRatio = 0.1
	maxGradNorm = 1.0
	adamwDecay  = 0.01 // PyTorch's default for AdamW
)

// adapterRates: how many times the rate of the whole model suits LoRA's adapters of any rank
// (Schulman et al. 2025, LoRA Without Regret).
const adapterRates = 10

// learningRate scales the base rate from the base batch to the effective batch.
func learningRate(o Options, effective int) (rate float64, reason string) {
	byDefault := defaultBaseRate
	if o.LoRARank > 0 {
		byDefault *= adapterRates
	}
	base, baseBatch := profile.Or(o.BaseLearningRate, byDefault),
		profile.Or(o.BaseBatchSize, defaultBaseBatchSize)
	ratio := float64(effective) / float64(baseBatch)
	switch o.LRScaling {
	case ScaleLinear:
		rate = base * ratio
		return rate, fmt.Sprintf("linear scaling: %s × %d / %d = %s", number(base), effective,
			baseBatch, number(rate))
	case ScaleNone:
		return base, fmt.Sprintf("%s, not scaled", number(base))
	}
	rate = base * math.Sqrt(ratio)
	return rate, fmt.Sprintf("sqrt scaling: %s × √(%d / %d) = %s", number(base), effective,
		baseBatch, number(rate))
}

// rateWarning: the published rate is one for Adam-like optimizers.
func rateWarning(o Options) string {
	if o.BaseLearningRate != nil || optimizers[o.Optimizer].name != "sgd" {
		return ""
	}
	return "The default base_learning_rate of 2e-05 is meant for AdamW; sgd usually needs one a " +
		"hundred times larger or more."
}

func weightDecay(name string) (decay float64, reason string) {
	if strings.HasPrefix(name, "adamw") {
		return adamwDecay, "PyTorch's default for AdamW"
	}
	return 0, fmt.Sprintf("off by default with %s", name)
}

// optionReason explains a setting that comes from the options, or its default.
func optionReason[T any](option *T, byDefault string) string {
	if option != nil {
		return "asked for"
	}
	return byDefault
}
