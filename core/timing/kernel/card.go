package kernel

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
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

// architecture is what cards of one generation share. Origins: [fit] operator tables of
// benchmarks/time_truth/fit; [spec] NVIDIA's white papers; [dev] chosen on the 57 points of
// benchmarks/time_truth, whose README has the discussion.
type architecture struct {
	base string // the fitted card whose float32 shares, and shares of the bandwidth, it takes
	// sustained float32 FLOP/s per watt of board power outside tensor cores: what large products of
	// the tables [fit] reach, [dev] after the A100
	simtPerWatt float64
	tensorWatt  float64 // sustained 16-bit FLOP/s per watt in tensor cores [dev]
	// of the tensor rate that a multiprocessor reaches inside the best tile [dev]
	tensorShare float64
	// of the base's float32 shares: below 1 where 128 lanes share the register ports of 64 [dev]
	simtShare float64
	memory    string  // the fitted card whose shares of the bandwidth it takes instead
	lanes     float64 // float32 units of a multiprocessor [spec]
	// bytes/s to and from pinned host memory, by the generation of PCIe with 16 lanes
	link         float64
	sameChip     bool // as the base
	fastBFloat16 bool
}

const giga, tera = 1e9, 1e12

// The fitted cards.
const pascal, volta, turing, ampere = "P100-16", "V100-16GB PCIe", "T4", "A100-40GB PCIe"

// What copies between pinned host memory and a card reach of the 16, 32 and 63 GB/s that 16 lanes
// of PCIe have.
const pcie3, pcie4, pcie5 = 12 * giga, 25 * giga, 50 * giga

// architectures by the beginning of their compute capability, longest first.
var architectures = []struct {
	capability string
	architecture
}{
	{"10.", architecture{base: ampere, simtPerWatt: 110 * giga, tensorWatt: 1.5 * tera,
		tensorShare: 0.50, simtShare: 0.8, lanes: 128, link: pcie5, fastBFloat16: true}},
	{"12.", architecture{base: ampere, simtPerWatt: 140 * giga, tensorWatt: 0.77 * tera,
		tensorShare: 0.90, simtShare: 0.8, lanes: 128, link: pcie5, fastBFloat16: true}},
	{"9.", architecture{base: ampere, simtPerWatt: 93 * giga, tensorWatt: 1.2 * tera,
		tensorShare: 0.50, simtShare: 0.8, lanes: 128, link: pcie5, fastBFloat16: true}},
	{"8.9", architecture{base: ampere, simtPerWatt: 140 * giga, tensorWatt: 0.77 * tera,
		tensorShare: 0.90, simtShare: 0.8, lanes: 128, link: pcie4, fastBFloat16: true}},
	{"8.6", architecture{base: ampere, simtPerWatt: 80 * giga, tensorWatt: 0.42 * tera,
		tensorShare: 0.90, simtShare: 0.8, lanes: 128, link: pcie4, fastBFloat16: true}},
	{"8.0", architecture{base: ampere, simtPerWatt: 62 * giga, tensorWatt: 0.85 * tera,
		tensorShare: 0.85, simtShare: 1, lanes: 64, link: pcie4, sameChip: true,
		fastBFloat16: true}},
	{"7.5", architecture{base: volta, simtPerWatt: 46 * giga, tensorWatt: 0.33 * tera,
		tensorShare: 0.75, simtShare: 1, memory: turing, lanes: 64, link: pcie3}},
	{"7.0", architecture{base: volta, simtPerWatt: 48 * giga, tensorWatt: 0.33 * tera,
		tensorShare: 0.80, simtShare: 1, lanes: 64, link: pcie3, sameChip: true}},
	{"6.", architecture{base: pascal, simtPerWatt: 23 * giga, simtShare: 1, lanes: 64, link: pcie3,
		sameChip: true}},
	// cuBLAS reaches about 2.8 of a K80's 4.4 TFLOPS [dev]
	{"3.7", architecture{base: pascal, simtShare: 0.7, lanes: 192, link: pcie3}},
}

func architectureOf(capability string) (architecture, bool) {
	for _, a := range architectures {
		if strings.HasPrefix(capability, a.capability) {
			return a.architecture, true
		}
	}
	return architecture{}, false
}

//go:embed fitted.json
var fittedJSON []byte

// Fit is what measured operators of one card gave.
type Fit struct {
	Single    Efficiency         `json:"single"`    // a linear layer's product
	Batched   Efficiency         `json:"batched"`   // several products in one kernel
	Bandwidth map[string]float64 `json:"bandwidth"` // share of the published one, by class
	// Convolution is how many times longer cuDNN takes than the product that the convolution
	// amounts to.
	Convolution float64 `json:"convolution"`
	// measured over predicted time of operators that were not fitted on: 10th, 50th and 90th
	// percentile
	Residuals map[string]profile.Range `json:"residuals"`
}

// Fitted is the file that benchmarks/time_truth/fit writes.
type Fitted struct {
	Source string `json:"source"`
	// Carried is how far products of one card are off by the shares of the generation before or
	// after.
	Carried map[string]profile.Range `json:"carried"`
	Cards   map[string]Fit           `json:"cards"`
}

var fitted = sync.OnceValue(func() Fitted {
	return jsontext.Embedded[Fitted]("core/timing/kernel/fitted.json", fittedJSON)
})
