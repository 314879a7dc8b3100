// Package peak has the records of an estimate: how much memory a run takes, when most, and for
// what. Sizes are bytes.
package peak

import (
	"cmp"
	"slices"
	"strings"
)

// Estimate is the GPU memory of a run: peaks, what holds them, and when.
type Estimate struct {
	// "trace" (a recorded training step, replayed through a simulation of the allocator) or
	// "published" (a tenth of the model's memory per sample)
	Estimator string `json:"estimator"`
	// what tensors take, in blocks of live storages, with their rounding
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakRequested uint64 `json:"peak_requested"` // the same without rounding
	// what PyTorch's allocator takes from the driver for them
	PeakReserved uint64 `json:"peak_reserved"`
	// that and the driver's context; null without a GPU
	PeakDevice *uint64 `json:"peak_device"`
	// host memory that offloaded checkpoints pin for one micro-batch; null where that is not known
	PinnedBytes *uint64 `json:"pinned_bytes"`
	// whether every allocation found room, without a safety margin; null without a GPU
	Fits *bool `json:"fits"`
	// how often the allocator gave its cache back to find room
	Retries uint64 `json:"retries"`
	// where the run would stop; null when it does not. The peaks are then those of a GPU that is
	// large enough
	OutOfMemory *OutOfMemory `json:"out_of_memory"`
	// share of the reserved memory that no tensor holds when it is most, 0 to 1
	Fragmentation float64 `json:"fragmentation"`
	AtPeak        AtPeak  `json:"at_peak"` // when most was allocated
	// by kind of segment and phase, in order of appearance
	Phases   []Phase   `json:"phases"`
	Timeline *Timeline `json:"timeline"` // null unless asked for
	// tensors whose size is not an exact polynomial of the shape
	Approximate int      `json:"approximate"`
	Notes       []string `json:"notes"`
}

// Place is where in a run something is allocated.
type Place struct {
	Segment string `json:"segment"`
	Phase   string `json:"phase"`
	Op      string `json:"op"`     // whose result it is
	Module  string `json:"module"` // "" outside any module
}

// OutOfMemory is where a run would stop: the request, in bytes, that the device cannot serve.
type OutOfMemory struct {
	Place
	Wanted    uint64 `json:"wanted"`
	Reserved  uint64 `json:"reserved"`  // once the allocator gave its cache back
	Allocated uint64 `json:"allocated"` // what tensors held of that
}

// AtPeak is the moment of the highest allocated memory, by component and module.
type AtPeak struct {
	Place
	Components map[string]uint64 `json:"components"`
	Modules    []ModuleBytes     `json:"modules"`
}

// Phase is the highest memory within one phase ("load", "forward", "backward", "optimizer",
// "evaluation") of one kind of segment.
type Phase struct {
	Segment       string `json:"segment"`
	Phase         string `json:"phase"`
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
}

// Timeline is the memory after some of a run's events: of each stretch of equal length, the event
// with the most allocated. The lists are as long as each other.
type Timeline struct {
	Event      []int               `json:"event"` // counted from the run's start
	Phase      []int               `json:"phase"` // index into the estimate's phases
	Allocated  []uint64            `json:"allocated"`
	Reserved   []uint64            `json:"reserved"` // most in the stretch
	Components map[string][]uint64 `json:"components"`
}

// ModuleBytes is what a part of the model holds.
type ModuleBytes struct {
	// a path, with * for the number of a layer where all are one row; "" outside any module
	Module string `json:"module"`
	Bytes  uint64 `json:"bytes"`
}

// otherModules is the row for what does not fit into a table.
const otherModules = "…"

// deepest is how many steps of a path without a layer's number make a row of their own.
const deepest = 3

// ModuleRows sums the bytes of modules up by part of the model, largest first, in at most so many
// rows: a layer each if they fit, else all layers of a stack in one row; the last has what is left.
func ModuleRows(modules []string, bytes []uint64, limit int) []ModuleBytes {
	var held []ModuleBytes
	for i, n := range bytes {
		if n > 0 {
			held = append(held, ModuleBytes{modules[i], n})
		}
	}
	rows := grouped(held, layerOf)
	if len(rows) > limit {
		rows = grouped(rows, stackOf)
	}
	if len(rows) > limit {
		others := ModuleBytes{Module: otherModules}
		for _, r := range rows[limit-1:] {
			others.Bytes += r.Bytes
		}
		rows = append(rows[:limit-1], others)
	}
	return rows
}

func grouped(held []ModuleBytes, partOf func(module string) string) []ModuleBytes {
	sums := map[string]uint64{}
	for _, h := range held {
		sums[partOf(h.Module)] += h.Bytes
	}
	rows := make([]ModuleBytes, 0, len(sums))
	for name, n := range sums {
		rows = append(rows, ModuleBytes{name, n})
	}
	slices.SortFunc(rows, func(a, b ModuleBytes) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Module, b.Module))
	})
	return rows
}

// layerOf cuts a path after the first number: wav2vec2.encoder.layers.3 of
// wav2vec2.encoder.layers.3.attention.q_proj.
func layerOf(path string) string {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if isNumber(step) {
			return strings.Join(steps[:i+1], ".")
		}
	}
	return strings.Join(steps[:min(len(steps), deepest)], ".")
}

// stackOf puts a * for the number at the end.
func stackOf(layer string) string {
	if dot := strings.LastIndexByte(layer, '.'); dot >= 0 && isNumber(layer[dot+1:]) {
		return layer[:dot+1] + "*"
	}
	return layer
}

func isNumber(step string) bool { return step != "" && strings.Trim(step, "0123456789") == "" }
