package kernel

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Card is a GPU as kernels see it.
type Card struct {
	Key             string
	Multiprocessors float64
	FP32            float64 // FLOP/s outside tensor cores
	TF32, FP16      float64 // FLOP/s of tensor cores, dense, sums in float32; 0 without
	Bandwidth       float64 // bytes/s
	L2              float64 // bytes
	Watts           float64 // 0 when unknown
	gddrWithECC     bool
	architecture
}

// CardOf is a card with published figures. Errors: Unsupported without rate, bandwidth,
// multiprocessors or a known architecture.
func CardOf(entry gpus.Entry) (Card, error) {
	generation, modern := architectureOf(entry.ComputeCapability)
	if !modern || entry.FP32TFLOPS == nil || entry.BandwidthGBs == nil ||
		!(entry.Multiprocessors > 0) {
		return Card{}, unknown(entry)
	}
	return Card{Key: entry.Key, Multiprocessors: entry.Multiprocessors,
		FP32: *entry.FP32TFLOPS * tera, TF32: profile.Or(entry.TF32TFLOPS, 0) * tera,
		FP16: profile.Or(entry.TensorTFLOPS, 0) * tera, Bandwidth: *entry.BandwidthGBs * giga,
		L2:    entry.L2MiB * (1 << 20),
		Watts: profile.Or(entry.PowerWatts, 0), gddrWithECC: entry.GDDRWithECC,
		architecture: generation}, nil
}

func unknown(entry gpus.Entry) error {
	return fault.New(fault.Unsupported, `name a card with published figures, such as "T4"`,
		"no times of kernels are known for %s", fault.Shorten(entry.Key))
}

// simtLimit is the share of the float32 rate that the power supply sustains.
func (c Card) simtLimit() float64 { return c.limit(c.simtPerWatt, c.FP32) }

// limit is the share of a rate that the board's power sustains at so much a watt; 1 where the power
// is unknown.
func (c Card) limit(perWatt, rate float64) float64 {
	if c.Watts == 0 || perWatt == 0 {
		return 1
	}
	return min(1, c.Watts*perWatt/rate)
}

// cycles is those of all multiprocessors in a second, from the published rate: a lane does two
// operations a cycle.
func (c Card) cycles() float64 { return c.FP32 / (2 * c.lanes) }

// slotPower in watts is what a slot supplies alone.
const slotPower = 75

// onSlotPower reports whether a card is powered by its slot alone, and so lowers its clock under
// load.
func (c Card) onSlotPower() bool { return c.Watts > 0 && c.Watts <= slotPower }
