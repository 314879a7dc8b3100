package analytic

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/device"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/model"
)

// Request is a training step to estimate. An absent value takes the default named at the end of its line.
type Request struct {
	Model   model.Request `json:"model"`   // a known name, a config or a folder
	Batch   int64         `json:"batch"`   // clips of a micro-batch, 1..65536
	Seconds float64       `json:"seconds"` // the longest clip of the batch, above 0 to 86400; Whisper pads any to 30
	Labels  *int64        `json:"labels"`  // tokens of the longest transcript, 0..65536; 15 a second for CTC, 4 for Whisper

	Precision            string `json:"precision"`              // "fp32", or by autocast "fp16" or "bf16"; "fp32"
	Checkpointing        bool   `json:"checkpointing"`          // gradient checkpointing, not reentrant
	EveryNLayers         int64  `json:"every_n_layers"`         // checkpoints each n-th layer alone, as transformers counts them, 1..65536; 1
	OffloadCheckpoints   bool   `json:"offload_checkpoints"`    // keeps what checkpoints save in pinned host memory
	Accumulation         int64  `json:"accumulation"`           // micro-batches of an optimizer step, 1..2^20; 1
	Optimizer            string `json:"optimizer"`              // the Trainer's name: see Optimizers; "adamw_torch_fused"
	FreezeFeatureEncoder bool   `json:"freeze_feature_encoder"` // as model.freeze_feature_encoder() does
	LoRARank             int64  `json:"lora_rank"`              // rank of LoRA adapters of queries and values, with all else but a CTC head frozen, 0..4096; 0, none
	Attention            string `json:"attention"`              // "sdpa" or "eager"; "sdpa"
	ComputeCapability    string `json:"compute_capability"`     // of the GPU in mind, such as "7.5"; "8.0"
	Torch                string `json:"torch"`                  // version of PyTorch in mind, such as "2.14"; the newest known
	Padded               *bool  `json:"padded"`                 // whether clips differ in length; true from a batch of 2

	Simulate      bool   `json:"simulate"`     // play every layer of three steps through the simulated allocator: exact peaks of reserved memory, in milliseconds
	Settings      string `json:"settings"`     // text of PYTORCH_CUDA_ALLOC_CONF for the simulation
	DeviceBytes   *int64 `json:"device_bytes"` // context and what else the process takes outside the allocator; unknown
	LimitBytes    *int64 `json:"limit_bytes"`  // what the allocator may reserve; without it, whether it fits is not said
	reduction.GPU        // its multiprocessors, for the size of some kernels' buffers
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

	maxLayers     = 1 << 16
	maxRankOfLoRA = 4096
	maxGiven      = 1 << 60 // bytes
)

// settings are the checked choices of a request.
type settings struct {
	low, bfloat, eager, checkpointing, offload, accumulating, padded bool
	evaluating                                                       bool // no layer is skipped
	gpu                                                              capability
	accumulation                                                     int64
	everyN                                                           int   // layers, of which one is checkpointed; 0 as 1
	rank                                                             int64 // of LoRA; 0 without
	optimizer                                                        optimizerRule
	libraries                                                        device.Workspaces
	sums                                                             reduction.GPU
	allocator                                                        allocator.Settings
}

func (r Request) settings() (s settings, err error) {
	if err = r.checkSizes(); err != nil {
		return s, err
	}
	s.low, s.bfloat, s.eager = r.Precision == "fp16" || r.Precision == "bf16", r.Precision == "bf16", r.Attention == "eager"
	s.checkpointing, s.padded, s.rank = r.Checkpointing, r.Batch > 1, r.LoRARank
	s.everyN, s.offload = int(r.EveryNLayers), r.OffloadCheckpoints
	s.accumulation, s.accumulating = r.Accumulation, r.Accumulation > 1
	if r.Padded != nil {
		s.padded = *r.Padded
	}
	if err = choose("precision", r.Precision, "fp32", "fp16", "bf16"); err != nil {
		return s, err
	}
	if err = choose("attention", r.Attention, "sdpa", "eager"); err != nil {
		return s, err
	}
	if s.gpu, err = parseCapability(r.ComputeCapability); err != nil {
		return s, err
	}
	if s.libraries, err = device.WorkspacesOf(s.gpu.String(), r.Torch); err != nil {
		return s, err
	}
	s.sums = r.GPU
	if s.allocator, err = allocator.ParseSettings(r.Settings); err != nil {
		return s, err
	}
	if r.LimitBytes != nil && *r.LimitBytes > 0 {
		s.allocator.Limit, s.allocator.DeviceTotal = uint64(*r.LimitBytes), uint64(*r.LimitBytes)
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
	case r.EveryNLayers < 0 || r.EveryNLayers > maxLayers:
		return fault.New(fault.InvalidArgument, "give 1 to checkpoint every layer", "every_n_layers is %d; the range is 1 to %d", r.EveryNLayers, maxLayers)
	case r.EveryNLayers > 1 && !r.Checkpointing:
		return fault.New(fault.InvalidArgument, "turn checkpointing on, or leave every_n_layers out", "every_n_layers is %d without checkpointing", r.EveryNLayers)
	case r.OffloadCheckpoints && !r.Checkpointing:
		return fault.New(fault.InvalidArgument, "turn checkpointing on, or leave offload_checkpoints out", "offload_checkpoints is true without checkpointing")
	case r.Accumulation < 0 || r.Accumulation > 1<<20:
		return fault.New(fault.InvalidArgument, "give the micro-batches of an optimizer step, or leave it out", "accumulation is %d; the range is 1 to 2^20", r.Accumulation)
	case r.LoRARank < 0 || r.LoRARank > maxRankOfLoRA:
		return fault.New(fault.InvalidArgument, "give the rank of the adapters, or leave it out", "lora_rank is %d; the range is 0 to %d", r.LoRARank, maxRankOfLoRA)
	case r.DeviceBytes != nil && (*r.DeviceBytes < 0 || *r.DeviceBytes > maxGiven):
		return fault.New(fault.InvalidArgument, "give bytes, or leave it out", "device_bytes is %d; the range is 0 to 2^60", *r.DeviceBytes)
	case r.LimitBytes != nil && (*r.LimitBytes < 1 || *r.LimitBytes > maxGiven):
		return fault.New(fault.InvalidArgument, "give bytes, or leave it out", "limit_bytes is %d; the range is 1 to 2^60", *r.LimitBytes)
	}
	return r.GPU.Check()
}

// choose checks a word against those known; the first one is the default.
func choose(field, given string, known ...string) error {
	if given == "" || slices.Contains(known, given) {
		return nil
	}
	return fault.New(fault.InvalidArgument, "leave it out for "+known[0], "%s is %q; it must be one of %s",
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
