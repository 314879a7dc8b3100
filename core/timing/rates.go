package timing

import (
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Shares of the published figures that PyTorch's kernels reach while a speech model trains, worst to best. The likely ones
// are those with which the estimate comes closest to NVIDIA's throughput of wav2vec2-base on an A100 in bfloat16 and TF32;
// their ranges are assumptions (docs/timing.md has the comparison).
var (
	productShare     = Range{0.30, 0.50, 0.70} // matrix products and attention
	convolutionShare = Range{0.10, 0.20, 0.40} // one-dimensional convolutions, which cuDNN runs on copies in another layout
	bandwidthShare   = Range{0.25, 0.45, 0.80} // everything else, tensor by tensor
	// lowPowerShare is for cards that lower their clock in continuous matrix products: a T4 (70 W) sustains 24 of 65 TFLOPS
	// (forums.developer.nvidia.com/t/264462); the L4 (72 W) is taken to do as it does.
	lowPowerShare = Range{0.25, 0.37, 0.55}
)

// Times that are there whatever the GPU, in seconds: assumptions.
var (
	launchTime   = Range{5e-6, 10e-6, 20e-6} // Python and the driver for one kernel
	microTime    = Range{2e-3, 6e-3, 20e-3}  // of a micro-batch: collating, copying to the GPU, the Trainer's loop
	stepTime     = Range{3e-3, 10e-3, 40e-3} // of an optimizer step: norm of the gradients, schedule, callbacks, logs
	nvlinkRate   = Range{60e9, 120e9, 250e9} // bytes per second of an all-reduce between cards with NVLink
	pciRate      = Range{4e9, 10e9, 20e9}    // between cards without
	tf32Share    = 0.5                       // of the 16-bit rate, in NVIDIA's data sheets
	ampere       = 8.0                       // compute capability; the first with TF32, which a plan turns on
	lowPowerWatt = 75.0                      // what a slot supplies without a further connector
)

// Rates is what a GPU does per second while a speech model trains.
type Rates struct {
	products, wideProducts         Range // operations
	convolutions, wideConvolutions Range
	bandwidth                      Range // bytes
	link                           Range // bytes, between GPUs
}

// RatesOf gives a GPU's rates. Errors: Unsupported where its figures are not published.
func RatesOf(g profile.GPU) (Rates, error) {
	if g.FP32TFLOPS == nil || g.BandwidthGBs == nil {
		return Rates{}, fault.New(fault.Unsupported, `name a card of the catalogue, such as gpu="T4"`, "no published figures for %s, so times cannot be estimated", g.Name)
	}
	wide, low := *g.FP32TFLOPS*1e12, profile.Or(g.TensorTFLOPS, *g.FP32TFLOPS)*1e12
	if Capability(g) >= ampere && g.TensorTFLOPS != nil {
		wide = max(wide, tf32Share*low)
	}
	share := productShare
	if watts := profile.Or(g.PowerWatts, lowPowerWatt+1); watts <= lowPowerWatt {
		share = lowPowerShare
	}
	r := Rates{products: share.Times(low), wideProducts: productShare.Times(wide), convolutions: convolutionShare.Times(low),
		wideConvolutions: convolutionShare.Times(wide), bandwidth: bandwidthShare.Times(*g.BandwidthGBs * 1e9), link: pciRate}
	if hasNVLink(g.Name) {
		r.link = nvlinkRate
	}
	return r, nil
}

// hasNVLink tells by the driver's name: modules in servers have it, cards for slots mostly not.
func hasNVLink(name string) bool {
	for _, mark := range []string{"SXM", "HBM3", "NVL", "GH200", "H200", "B200"} {
		if strings.Contains(name, mark) && !strings.Contains(name, "MIG") {
			return true
		}
	}
	return false
}

// Capability reads a compute capability such as "8.9"; 0 when it is unknown.
func Capability(g profile.GPU) float64 {
	value, err := strconv.ParseFloat(g.ComputeCapability, 64)
	if err != nil || !(value >= 0 && value < 100) {
		return 0
	}
	return value
}

// Takes is how long an amount takes at a rate: fastest at the best one.
func Takes(amount float64, rate Range) Range {
	return Range{amount / rate.High, amount / rate.Likely, amount / rate.Low}
}
