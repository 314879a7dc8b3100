package kernel

import "strings"

// architecture is what cards of one generation share. Origins: [fit] operator tables of
// benchmarks/time_truth/fit; [spec] NVIDIA's white papers; [dev] chosen on the 57 points of
// benchmarks/time_truth, whose README has the discussion.
type architecture struct {
	base string // the fitted card whose float32 shares it takes
	// sustained float32 FLOP/s per watt of board power outside tensor cores: what large products of
	// the tables [fit] reach, [dev] after the A100
	simtPerWatt float64
	tensorWatt  float64 // sustained 16-bit FLOP/s per watt in tensor cores [dev]
	// of the tensor rate that a multiprocessor reaches inside the best tile [dev]
	tensorShare float64
	// of the base's float32 shares: below 1 where 128 lanes share the register ports of 64 [dev]
	simtShare float64
	memory    string  // the fitted card whose shares of the bandwidth it takes
	lanes     float64 // float32 units of a multiprocessor [spec]
	// bytes/s to and from pinned host memory, by the generation of PCIe with 16 lanes
	link         float64
	sameChip     bool // as the base
	fastBFloat16 bool
}

const giga, tera = 1e9, 1e12

// What copies between pinned host memory and a card reach of the 16, 32 and 63 GB/s that 16 lanes
// of PCIe have.
const pcie3, pcie4, pcie5 = 12 * giga, 25 * giga, 50 * giga

// architectures by the beginning of their compute capability, longest first.
var architectures = []struct {
	capability string
	architecture
}{
	{"10.", architecture{base: "A100-40GB PCIe", simtPerWatt: 110 * giga, tensorWatt: 1.5 * tera,
		tensorShare: 0.50, simtShare: 0.8, memory: "A100-40GB PCIe", lanes: 128, link: pcie5,
		fastBFloat16: true}},
	{"12.", architecture{base: "A100-40GB PCIe", simtPerWatt: 140 * giga, tensorWatt: 0.77 * tera,
		tensorShare: 0.90, simtShare: 0.8, memory: "A100-40GB PCIe", lanes: 128, link: pcie5,
		fastBFloat16: true}},
	{"9.", architecture{base: "A100-40GB PCIe", simtPerWatt: 93 * giga, tensorWatt: 1.2 * tera,
		tensorShare: 0.50, simtShare: 0.8, memory: "A100-40GB PCIe", lanes: 128, link: pcie5,
		fastBFloat16: true}},
	{"8.9", architecture{base: "A100-40GB PCIe", simtPerWatt: 140 * giga, tensorWatt: 0.77 * tera,
		tensorShare: 0.90, simtShare: 0.8, memory: "A100-40GB PCIe", lanes: 128, link: pcie4,
		fastBFloat16: true}},
	{"8.6", architecture{base: "A100-40GB PCIe", simtPerWatt: 80 * giga, tensorWatt: 0.42 * tera,
		tensorShare: 0.90, simtShare: 0.8, memory: "A100-40GB PCIe", lanes: 128, link: pcie4,
		fastBFloat16: true}},
	{"8.0", architecture{base: "A100-40GB PCIe", simtPerWatt: 62 * giga, tensorWatt: 0.85 * tera,
		tensorShare: 0.85, simtShare: 1, memory: "A100-40GB PCIe", lanes: 64, link: pcie4,
		sameChip: true, fastBFloat16: true}},
	{"7.5", architecture{base: "V100-16GB PCIe", simtPerWatt: 46 * giga, tensorWatt: 0.33 * tera,
		tensorShare: 0.75, simtShare: 1, memory: "T4", lanes: 64, link: pcie3}},
	{"7.0", architecture{base: "V100-16GB PCIe", simtPerWatt: 48 * giga, tensorWatt: 0.33 * tera,
		tensorShare: 0.80, simtShare: 1, memory: "V100-16GB PCIe", lanes: 64, link: pcie3,
		sameChip: true}},
	{"6.", architecture{base: "P100-16", simtPerWatt: 23 * giga, simtShare: 1, memory: "P100-16",
		lanes: 64, link: pcie3, sameChip: true}},
	// cuBLAS reaches about 2.8 of a K80's 4.4 TFLOPS [dev]
	{"3.7", architecture{base: "P100-16", simtShare: 0.7, memory: "P100-16", lanes: 192,
		link: pcie3}},
}

func architectureOf(capability string) (architecture, bool) {
	for _, a := range architectures {
		if strings.HasPrefix(capability, a.capability) {
			return a.architecture, true
		}
	}
	return architecture{}, false
}
