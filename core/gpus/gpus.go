// Package gpus is the catalogue of published GPUs: their memory, rates and power, found by name. It
// reads no hardware.
package gpus

import (
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
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
	L2MiB           float64 `json:"l2_mib"`
	// error correction in GDDR, on by default, takes bandwidth
	GDDRWithECC bool `json:"gddr_with_ecc"`
	// a slice; its figures are shares of the card's
	MIG           bool   `json:"mig"`
	ReleaseYear   int    `json:"release_year"`
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

// entries decodes the file once.
var entries = sync.OnceValue(func() []Entry {
	records := jsontext.Embedded[[]record]("core/gpus/gpus.json", gpusJSON)
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

// Find is the card of Match, else the one that Parse finds by the name: kernels take as long on a
// card with less memory, say. Errors: those of Parse.
func Find(driverName string, memoryTotal uint64) (Entry, error) {
	if card, ok := Match(driverName, memoryTotal); ok {
		return card, nil
	}
	card, _, err := Parse(driverName)
	return card, err
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

// counted is "T4", "2xT4", "2 × T4" or "2*T4".
var counted = regexp.MustCompile(`^\s*(\d{1,6})\s*[xX×*]\s*(.+)$`)

// maxGPUs bounds how many GPUs a plan may ask for on one machine; the largest servers hold 16.
const maxGPUs = 64

// Parse reads a GPU specification: "T4", or "2xT4" for two. A GPU is given by a key, an alias or a
// driver's name, in any case, with or without spaces, '-', '_', "NVIDIA", "Tesla", "GeForce",
// "RTX", and with the memory size where it agrees ("L4 24GB"). A name that several cards share
// means the most common one: "A100" is the 40 GB SXM card, "H100" the 80 GB SXM card, "V100" and
// "P100" have 16 GB. Errors: NotFound for an unknown name, with the closest ones as the hint,
// InvalidArgument for a count outside 1..64.
func Parse(text string) (card Entry, count int, err error) {
	count, name := 1, text
	if parts := counted.FindStringSubmatch(text); parts != nil {
		count, _ = strconv.Atoi(parts[1]) // at most six digits, so it cannot fail
		name = parts[2]
	}
	if count < 1 || count > maxGPUs {
		return Entry{}, 0, fault.New(fault.InvalidArgument,
			`write the number of GPUs before the name, as in "2xT4"`,
			"cannot plan for %d GPUs (%q): the count must lie between 1 and %d", count,
			fault.Shorten(text), maxGPUs)
	}
	if card, ok := lookup(name); ok {
		return card, count, nil
	}
	return Entry{}, 0, unknown(name)
}

func unknown(name string) error {
	return fault.New(fault.NotFound, "did you mean "+strings.Join(closest(name), ", ")+"?",
		"there is no GPU %q in the catalogue", fault.Shorten(name))
}

// sizeSuffix is a memory size at the end of a name: "T4-16GB", "l4 24g".
var sizeSuffix = regexp.MustCompile(`(?i)^(.+?)[\s_-]+(\d{1,4})\s*g(?:i?b)?$`)

func lookup(name string) (Entry, bool) {
	if len(name) > maxName {
		return Entry{}, false
	}
	for _, spelling := range []string{normalise(name), normalise(name) + "g"} {
		// "A100-80" is "A100-80GB"
		if entry, ok := named(spelling); ok {
			return entry, true
		}
	}
	parts := sizeSuffix.FindStringSubmatch(strings.TrimSpace(name))
	if parts == nil {
		return Entry{}, false
	}
	entry, ok := named(normalise(parts[1]))
	size, _ := strconv.ParseFloat(parts[2], 64) // at most four digits, so it cannot fail
	return entry, ok && entry.soldAs(size)
}

// maxName bounds the names that are looked up and compared, in bytes.
const maxName = 100

// soldAs reports whether an advertised size matches: anything from what the driver shows in GiB
// (H200: 141 for 140.4) to the same in GB (T4: 16 for 16.1), within 3 %.
func (e Entry) soldAs(gigabytes float64) bool {
	bytes := float64(e.MemoryTotalBytes)
	return gigabytes >= 0.97*bytes/(1<<30) && gigabytes <= 1.03*bytes/1e9
}

func named(normalised string) (Entry, bool) {
	for _, e := range entries() {
		if slices.Contains(e.names(), normalised) {
			return e, true
		}
	}
	return Entry{}, false
}

// names are all normalised names of an entry.
func (e Entry) names() []string {
	var all []string
	for _, name := range slices.Concat([]string{e.Key}, e.Aliases, e.DriverNames) {
		all = append(all, normalise(name))
	}
	return all
}

// decoration is what names are compared without; sizes keep their number and a "g".
var decoration = strings.NewReplacer("nvidia", "", "tesla", "", "geforce", "", "rtx", "", " ", "",
	"\t", "", "-", "", "_", "",
	"gib", "g", "gb", "g")

// normalise makes names comparable: "NVIDIA GeForce RTX 4090" and "4090" are one, as are "a100_40g"
// and "A100-40GB".
func normalise(name string) string { return decoration.Replace(strings.ToLower(name)) }

// closest returns the keys of the five cards whose names look most like the given one.
func closest(name string) (keys []string) {
	name = normalise(name[:min(len(name), maxName)])
	for _, e := range fault.Closest(5, name, entries(), Entry.names) {
		keys = append(keys, e.Key)
	}
	return keys
}
