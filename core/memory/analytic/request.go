package analytic

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/model"
)

// Request is one training step to estimate. An absent value takes the default named beside it.
type Request struct {
	Model   model.Request `json:"model"`   // a known name, a config or a folder
	Batch   int64         `json:"batch"`   // clips of a micro-batch, 1..65536
	Seconds float64       `json:"seconds"` // the longest clip of the batch, above 0 to 86400; Whisper pads any to 30
	Labels  *int64        `json:"labels"`  // tokens of the longest transcript, 0..65536; 15 a second for CTC, 4 for Whisper

	Precision            string `json:"precision"`              // "fp32", "fp16", "bf16": the last two by autocast; "fp32"
	Checkpointing        bool   `json:"checkpointing"`          // gradient checkpointing of every layer, not reentrant
	Accumulation         int64  `json:"accumulation"`           // micro-batches of an optimizer step, 1..2^20; 1
	Optimizer            string `json:"optimizer"`              // the Trainer's name: see Optimizers; "adamw_torch"
	FreezeFeatureEncoder bool   `json:"freeze_feature_encoder"` // as model.freeze_feature_encoder() does; Read takes it from its own request
	Attention            string `json:"attention"`              // "sdpa" or "eager"; "sdpa"
	ComputeCapability    string `json:"compute_capability"`     // of the GPU in mind: "7.5"; "8.0"
	Padded               *bool  `json:"padded"`                 // whether clips differ in length; true from a batch of 2

	DeviceBytes *int64 `json:"device_bytes"` // context and what else the process takes outside the allocator; unknown
	LimitBytes  *int64 `json:"limit_bytes"`  // what the allocator may reserve; without one, whether it fits is not said
}

// Shape is the size of a micro-batch.
type Shape struct {
	Batch   int64
	Seconds float64
	Labels  int64
}

const (
	maxBatch   = 1 << 16
	maxSeconds = 24 * 3600
	maxLabels  = 1 << 16
)

// settings are the checked choices of a request.
type settings struct {
	low, bfloat, eager, checkpointing, accumulating, padded bool
	gpu                                                     capability
	optimizer                                               optimizerRule
}

func (r Request) settings() (settings, error) {
	s := settings{checkpointing: r.Checkpointing, accumulating: r.Accumulation > 1}
	if err := r.checkSizes(); err != nil {
		return s, err
	}
	s.padded = r.Batch > 1
	if r.Padded != nil {
		s.padded = *r.Padded
	}
	var err error
	if err = choose("precision", r.Precision, "fp32", "fp32", "fp16", "bf16"); err != nil {
		return s, err
	}
	s.low, s.bfloat = r.Precision == "fp16" || r.Precision == "bf16", r.Precision == "bf16"
	if err = choose("attention", r.Attention, "sdpa", "sdpa", "eager"); err != nil {
		return s, err
	}
	s.eager = r.Attention == "eager"
	if s.gpu, err = parseCapability(r.ComputeCapability); err != nil {
		return s, err
	}
	s.optimizer, err = findOptimizer(r.Optimizer)
	return s, err
}

func (r Request) checkSizes() error {
	switch {
	case r.Batch < 1 || r.Batch > maxBatch:
		return fault.New(fault.InvalidArgument, "give the clips of one micro-batch", "batch is %d; the range is 1 to %d", r.Batch, maxBatch)
	case math.IsNaN(r.Seconds) || r.Seconds <= 0 || r.Seconds > maxSeconds:
		return fault.New(fault.InvalidArgument, "give the duration of the longest clip in seconds", "seconds is %v; the range is above 0 to %d", r.Seconds, maxSeconds)
	case r.Labels != nil && (*r.Labels < 0 || *r.Labels > maxLabels):
		return fault.New(fault.InvalidArgument, "give the tokens of the longest transcript, or leave it out", "labels is %d; the range is 0 to %d", *r.Labels, maxLabels)
	case r.Accumulation < 0 || r.Accumulation > 1<<20:
		return fault.New(fault.InvalidArgument, "leave it out, or give the micro-batches of an optimizer step", "accumulation is %d; the range is 1 to 2^20", r.Accumulation)
	}
	for _, b := range []struct {
		field string
		value *int64
	}{{"device_bytes", r.DeviceBytes}, {"limit_bytes", r.LimitBytes}} {
		if b.value != nil && (*b.value < 0 || *b.value > maxBytes) {
			return fault.New(fault.InvalidArgument, "give bytes, or leave it out", "%s is %d; the range is 0 to 2^60", b.field, *b.value)
		}
	}
	return nil
}

// choose checks a word against those known; absent is the default.
func choose(field, given, otherwise string, known ...string) error {
	if given == "" || slices.Contains(known, given) {
		return nil
	}
	return fault.New(fault.InvalidArgument, "leave it out for "+otherwise, "%s is %q; it must be one of %s",
		field, fault.Shorten(given), strings.Join(known, ", "))
}

func parseCapability(text string) (capability, error) {
	if text == "" {
		return capability{8, 0}, nil
	}
	left, right, dotted := strings.Cut(text, ".")
	major, err := strconv.Atoi(left)
	minor, err2 := strconv.Atoi(right)
	if !dotted || err != nil || err2 != nil || major < 3 || major > 99 || minor < 0 || minor > 9 {
		return capability{}, fault.New(fault.InvalidArgument, "give what nvidia-smi --query-gpu=compute_cap prints",
			"compute_capability is %q; it must look like 8.0", fault.Shorten(text))
	}
	return capability{major, minor}, nil
}
