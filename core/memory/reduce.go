package memory

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// A sum over the leading dimensions, as of a bias' gradient, is split over several blocks of threads when there are many
// rows, and their partial sums take a temporary buffer. Its size has thresholds, saturates and depends on the GPU, so no
// fit over a few shapes carries it. The trace names the columns in the operation and counts the rows instead of bytes; the
// rows are fitted like any size, and the rule makes bytes of them.

// columnSumOp heads the operation of a birth whose size counts rows; the number of columns follows.
const columnSumOp = "column_sum:"

const maxColumns = 1 << 31

// GPU is what the size of a column sum's buffer depends on.
type GPU struct {
	Multiprocessors *int `json:"multiprocessors"`            // 1 to 1024; 108 (A100) when absent
	Threads         *int `json:"threads_per_multiprocessor"` // most resident ones, 256 to 4096; 2048 when absent
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
		name               string
		value, least, most int
	}{
		{"multiprocessors", orElse(g.Multiprocessors, usualMultiprocessors), 1, maxMultiprocessors},
		{"threads_per_multiprocessor", orElse(g.Threads, usualThreads), leastThreads, maxThreads},
	} {
		if f.value < f.least || f.value > f.most {
			return outOfRange("%s is %d; the range is %d to %d", f.name, f.value, f.least, f.most)
		}
	}
	return nil
}

// ColumnSum gives the bytes of the buffer that a checked GPU takes to sum up a rows × columns matrix's columns, 1 to 2^31.
func (g GPU) ColumnSum(rows, columns int64) uint64 {
	return g.reducer().columnSum(columns, uint64(max(0, rows)))
}

// reducer knows the GPU on which columns are summed up.
type reducer struct{ multiprocessors, threads int64 }

func (g GPU) reducer() reducer {
	return reducer{int64(orElse(g.Multiprocessors, usualMultiprocessors)), int64(orElse(g.Threads, usualThreads))}
}

// parseColumns gives the columns of a column sum's operation, and 0 for any other operation.
func parseColumns(op string) (int64, error) {
	text, found := strings.CutPrefix(op, columnSumOp)
	if !found {
		return 0, nil
	}
	columns, err := strconv.ParseUint(text, 10, 64)
	if err != nil || columns < 1 || columns > maxColumns {
		return 0, fmt.Errorf("operation %q: the columns of a sum are a number from 1 to %d", fault.Shorten(op), int64(maxColumns))
	}
	return int64(columns), nil
}

// bytes gives what a birth of a size takes: the size itself, the buffer of a column sum of so many rows, or nothing for a
// count.
func (r reducer) bytes(size uint64, columns int64) uint64 {
	switch columns {
	case 0:
		return size
	case countOnly:
		return 0
	}
	return r.columnSum(columns, size)
}

// How a reduction is laid out, aten/src/ATen/native/cuda/Reduce.cuh.
const (
	reduceThreads  = 512 // of a block, shared by the elements of a vector
	reduceWarp     = 32  // threads
	fewestOfThread = 16  // rows of a thread for which another block is taken
	mostOfThread   = 256 // rows of a thread beyond which there are more blocks
	partialBytes   = 4   // of a partial sum: float32
)

// columnSum gives the bytes of the buffer for the partial sums of a rows × columns matrix (setReduceConfig and
// ReduceConfig::global_memory_size in aten/src/ATen/native/cuda/Reduce.cuh): 0 when each block sums all of its columns' rows.
func (r reducer) columnSum(columns int64, size uint64) uint64 {
	if size == 0 || size >= tooLarge {
		return size
	}
	rows, vector := int64(size), vectorOf(columns)
	outputs := columns / vector
	most := reduceThreads / vector
	height := min(floorPower(rows), most/min(floorPower(outputs), reduceWarp))
	width := min(floorPower(outputs), most/height)
	if rows < height*fewestOfThread && rows < mostOfThread {
		return 0
	}
	perThread, grid := ceilDiv(rows, height), ceilDiv(outputs, width)
	target := r.multiprocessors * (r.threads / (width * height))
	if perThread < mostOfThread || grid > target {
		return 0
	}
	blocks := max(min(ceilDiv(target, grid), ceilDiv(perThread, fewestOfThread)), ceilDiv(perThread, mostOfThread))
	if blocks <= 1 {
		return 0
	}
	bytes := partialBytes * float64(columns) * float64(blocks) * float64(width*vector)
	return uint64(math.Min(bytes, tooLarge))
}

// vectorOf is how many columns a thread loads at once.
func vectorOf(columns int64) int64 { return min(columns&-columns, 4) }

// floorPower is the largest power of two up to n, which is positive.
func floorPower(n int64) int64 { return 1 << (bits.Len64(uint64(n)) - 1) }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
