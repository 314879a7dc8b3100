// Package reduction has the sizes of the buffers that PyTorch's reductions take on a GPU. A sum
// over the leading dimensions, as of a bias' gradient, is split over several blocks of threads when
// there are many rows, and their partial sums take a temporary buffer. Its size has thresholds,
// saturates and depends on the GPU, so no formula over a few shapes carries it: a trace counts the
// rows, which are fitted as any size, and the rules here make bytes of them.
package reduction

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// GPU is what the size of a column sum's buffer depends on.
type GPU struct {
	Multiprocessors *int `json:"multiprocessors"` // 1 to 1024; 108 (A100) when absent
	// most resident ones, 256 to 4096; 2048 when absent
	Threads *int `json:"threads_per_multiprocessor"`
}

const (
	usualMultiprocessors = 108
	usualThreads         = 2048
	maxMultiprocessors   = 1024
	leastThreads         = 256
	maxThreads           = 4096
)

// Check finds numbers that no GPU has. Errors: InvalidArgument.
func (g GPU) Check() error {
	for _, f := range []struct {
		name             string
		value, low, high int
	}{
		{"multiprocessors", orElse(g.Multiprocessors, usualMultiprocessors), 1, maxMultiprocessors},
		{"threads_per_multiprocessor", orElse(g.Threads, usualThreads), leastThreads, maxThreads},
	} {
		if f.value < f.low || f.value > f.high {
			return fault.New(fault.InvalidArgument,
				"see the operation's arguments in capi/operations.json",
				"%s is %d; the range is %d to %d",
				f.name, f.value, f.low, f.high)
		}
	}
	return nil
}

// ColumnSum returns the bytes of the buffer that a checked GPU takes to sum up a rows × columns
// matrix's columns, 1 to 2^31.
func (g GPU) ColumnSum(rows, columns int64) uint64 {
	return g.Rules().columnSum(columns, uint64(max(0, rows)))
}

// Rules make bytes of what a trace counts.
type Rules struct{ multiprocessors, threads int64 }

// Rules of a checked GPU.
func (g GPU) Rules() Rules {
	return Rules{int64(orElse(g.Multiprocessors, usualMultiprocessors)),
		int64(orElse(g.Threads, usualThreads))}
}

func orElse(value *int, otherwise int) int {
	if value == nil {
		return otherwise
	}
	return *value
}

// Bytes returns the size of a storage of which count units were recorded.
func (r Rules) Bytes(size uint64, unit trace.Unit) uint64 {
	columns := int64(unit.Columns)
	switch unit.Count {
	case trace.Bytes:
		return size
	case trace.ColumnSum:
		return r.columnSum(columns, size)
	case trace.NormSum:
		return r.columnSum(columns, uint64(r.normBlocks(columns, size)))
	case trace.NormBlocks:
		return uint64(4 * columns * r.normBlocks(columns, size))
	case trace.NormBlocksHalf:
		return uint64(2 * columns * r.normBlocks(columns, size))
	}
	return 0 // a count of elements
}
