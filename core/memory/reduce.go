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

// counted are the operations whose births count rows: what heads the operation, before the number of columns, and what is
// added to that number to tell them apart.
var counted = []struct {
	head string
	kind int64
}{{columnSumOp, 0}, {"norm_sum:", normSum}, {"norm_blocks:4:", normBlocks}, {"norm_blocks:2:", normBlocksHalf}}

// Kinds of counted rows beside the column sum, in the bits above the columns.
const (
	normSum        = 1 << 32 // the sum over the blocks of a norm's gradient
	normBlocks     = 2 << 32 // the blocks, of four bytes an element
	normBlocksHalf = 3 << 32 // of two bytes
	kindMask       = 3 << 32
)

// parseCounted gives the columns of an operation that counts rows, with its kind, and 0 for any other operation.
func parseCounted(op string) (int64, error) {
	for _, c := range counted {
		text, found := strings.CutPrefix(op, c.head)
		if !found {
			continue
		}
		columns, err := strconv.ParseUint(text, 10, 64)
		if err != nil || columns < 1 || columns > maxColumns {
			return 0, fmt.Errorf("operation %q: the columns are a number from 1 to %d", fault.Shorten(op), int64(maxColumns))
		}
		return c.kind | int64(columns), nil
	}
	return 0, nil
}

// bytes gives what a birth of a size takes: the size itself, a buffer for so many rows, or nothing for a count.
func (r reducer) bytes(size uint64, counts int64) uint64 {
	columns := counts &^ kindMask
	switch {
	case counts == 0:
		return size
	case counts == countOnly:
		return 0
	case counts&kindMask == 0:
		return r.columnSum(columns, size)
	}
	blocks := r.normBlocks(columns, size)
	switch counts & kindMask {
	case normBlocks:
		return uint64(4 * columns * blocks)
	case normBlocksHalf:
		return uint64(2 * columns * blocks)
	}
	return r.columnSum(columns, uint64(blocks))
}

// A layer norm's gradients of weight and bias, over more rows than these and with too few columns to keep the GPU busy, are
// summed in blocks of rows first (ConfigureAndLaunchGammaBetaBackwardKernel in aten/src/ATen/native/cuda/layer_norm_kernel.cu).
const (
	normRows    = 64 << 10
	normTile    = 32       // rows, and columns, of a block
	normMostRun = 32 << 10 // blocks in all
)

// normBlocks gives the blocks of rows that a rows × columns layer norm's gradients are summed in, 0 where there are none.
func (r reducer) normBlocks(columns int64, rows uint64) int64 {
	if rows <= normRows || rows >= tooLarge || columns/normTile >= r.multiprocessors/2 {
		return 0
	}
	return min(normMostRun/ceilDiv(columns, normTile), ceilDiv(int64(rows), normTile))
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
