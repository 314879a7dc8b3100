// Package gpus is the catalogue of published GPUs: their memory, rates and power, found by name. It
// reads no hardware.
package gpus

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/profile"
)

// gpusJSON is one card per line. Memory is what the driver reports, not the figure on the box; each
// row names where its memory and its figures were seen, and "unverified" marks rows whose figures
// no copy of a source was at hand for.
//
//go:embed gpus.json
var gpusJSON []byte

// Entry is one card, or one MIG slice of a card, with its published figures. Rates are 10^12
// operations per second, dense, with fp32 accumulation: GeForce and RTX cards do twice that with
// fp16 accumulation, which PyTorch does not use.
type Entry struct {
	Key     string   `json:"key"`     // "A100-40GB SXM"
	Aliases []string `json:"aliases"` // other names that Parse takes
	// what NVML reports; the first one names a planned GPU
	DriverNames      []string `json:"driver_names"`
	MemoryTotalBytes uint64   `json:"memory_total_bytes"` // as current drivers report it
	// as other drivers, or another ECC setting, report it
	OtherMemoryBytes  []uint64 `json:"other_memory_bytes"`
	ComputeCapability string   `json:"compute_capability"`
	BandwidthGBs      *float64 `json:"bandwidth_gb_s"` // 10^9 bytes per second
	// fp16, and bf16 from compute capability 8.0 on; absent without fast fp16
	TensorTFLOPS *float64 `json:"tensor_tflops"`
	TF32TFLOPS   *float64 `json:"tf32_tflops"` // absent before compute capability 8.0
	FP32TFLOPS   *float64 `json:"fp32_tflops"` // outside tensor cores
	PowerWatts   *float64 `json:"power_watts"` // of the board; absent for a MIG slice
	// by NVIDIA's white papers, as the two that follow; not checked against copies
	Multiprocessors float64 `json:"multiprocessors"`
	L2MiB           float64 `json:"l2_mib"` //
	// error correction in GDDR, on by default, takes bandwidth
	GDDRWithECC bool `json:"gddr_with_ecc"`
	// a slice; its figures are shares of the card's
	MIG           bool   `json:"mig"`
	ReleaseYear   int    `json:"release_year"`   //
	MemorySource  string `json:"memory_source"`  // where the memory size was seen
	FiguresSource string `json:"figures_source"` // where the rates were seen
	// some figure or name was not checked against a source
	Unverified bool   `json:"unverified"`
	Note       string `json:"note"`
}

// record is an entry as the file has it, with sizes in MiB as nvidia-smi prints them.
type record struct {
	Entry
	MemoryTotalMiB uint64   `json:"memory_total_mib"`
	OtherMemoryMiB []uint64 `json:"other_memory_mib"`
}

const mib = 1 << 20

// entries decodes the file once. It is part of the program, so a broken one is a defect and panics.
var entries = sync.OnceValue(func() []Entry {
	var records []record
	if err := json.Unmarshal(gpusJSON, &records); err != nil {
		panic("core/gpus/gpus.json: " + err.Error())
	}
	cards := make([]Entry, len(records))
	for i, r := range records {
		cards[i] = r.Entry
		cards[i].MemoryTotalBytes = r.MemoryTotalMiB * mib
		cards[i].OtherMemoryBytes = []uint64{}
		for _, size := range r.OtherMemoryMiB {
			cards[i].OtherMemoryBytes = append(cards[i].OtherMemoryBytes, size*mib)
		}
	}
	return cards
})

// All lists the known cards, oldest first within their class. The slice is the caller's; what its
// entries point to is shared and must not be changed.
func All() []Entry { return slices.Clone(entries()) }

// GPU is the entry as a planned GPU.
func (e Entry) GPU() profile.GPU {
	planned := profile.GPU{
		Name: e.DriverNames[0], ComputeCapability: e.ComputeCapability,
		MemoryTotalBytes: e.MemoryTotalBytes,
		Processes:        []profile.Process{}, MIG: e.MIG, BF16: NativeBF16(e.ComputeCapability),
		Source: "catalogue",
	}
	e.Fill(&planned)
	return planned
}

// Fill adds the published figures to a GPU.
func (e Entry) Fill(gpu *profile.GPU) {
	gpu.BandwidthGBs, gpu.TensorTFLOPS = own(e.BandwidthGBs), own(e.TensorTFLOPS)
	gpu.FP32TFLOPS, gpu.PowerWatts = own(e.FP32TFLOPS), own(e.PowerWatts)
}

// own copies a figure, so that whoever overrides it in a profile does not change the catalogue.
func own(figure *float64) *float64 {
	if figure == nil {
		return nil
	}
	value := *figure
	return &value
}

// Match finds the card behind a driver's name. The memory must agree to 2.5 % with a known size of
// that card, because cards of different size share names ("NVIDIA GeForce RTX 4060 Ti" has 8 or 16
// GB).
func Match(driverName string, memoryTotal uint64) (Entry, bool) {
	wanted := normalise(driverName)
	for _, e := range entries() {
		if slices.ContainsFunc(e.DriverNames, func(name string) bool {
			return normalise(name) == wanted
		}) && e.hasMemory(memoryTotal) {
			return e, true
		}
	}
	return Entry{}, false
}

func (e Entry) hasMemory(bytes uint64) bool {
	const tolerance = 0.025
	near := func(size uint64) bool {
		return math.Abs(float64(bytes)-float64(size)) <= tolerance*float64(size)
	}
	return near(e.MemoryTotalBytes) || slices.ContainsFunc(e.OtherMemoryBytes, near)
}

// NativeBF16 reports whether tensor cores take bfloat16: from compute capability 8.0 on. "" and
// garbage count as no.
func NativeBF16(computeCapability string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(computeCapability, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major >= 8
}
