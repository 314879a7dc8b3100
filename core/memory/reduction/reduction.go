// Package reduction has the sizes of the buffers that PyTorch's reductions take on a GPU. A sum
// over the leading dimensions, as of a bias' gradient, is split over several blocks of threads when
// there are many rows, and their partial sums take a temporary buffer. Its size has thresholds,
// saturates and depends on the GPU, so no formula over a few shapes carries it: a trace counts the
// rows, which are fitted as any size, and the rules here make bytes of them.
package reduction

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/profile"
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
	return cmp.Or(fault.InRange("multiprocessors",
		profile.Or(g.Multiprocessors, usualMultiprocessors), 1, maxMultiprocessors),
		fault.InRange("threads_per_multiprocessor", profile.Or(g.Threads, usualThreads),
			leastThreads, maxThreads))
}

// Rules make bytes of what a trace counts.
type Rules struct{ multiprocessors, threads int64 }

// Rules of a checked GPU.
func (g GPU) Rules() Rules {
	return Rules{int64(profile.Or(g.Multiprocessors, usualMultiprocessors)),
		int64(profile.Or(g.Threads, usualThreads))}
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

// How a reduction is laid out, aten/src/ATen/native/cuda/Reduce.cuh.
const (
	reduceThreads  = 512 // of a block, shared by the elements of a vector
	reduceWarp     = 32  // threads
	fewestOfThread = 16  // rows of a thread for which another block is taken
	mostOfThread   = 256 // rows of a thread beyond which there are more blocks
	partialBytes   = 4   // of a partial sum: float32
)

// columnSum returns the bytes of the buffer for the partial sums of a rows × columns matrix
// (setReduceConfig and ReduceConfig::global_memory_size in aten/src/ATen/native/cuda/Reduce.cuh): 0
// when each block sums all of its columns' rows.
func (r Rules) columnSum(columns int64, size uint64) uint64 {
	if size == 0 || size >= trace.TooLarge {
		return size
	}
	rows, vector := int64(size), vectorOf(columns)
	outputs := columns / vector
	threads := reduceThreads / vector
	height := min(floorPower(rows), threads/min(floorPower(outputs), reduceWarp))
	width := min(floorPower(outputs), threads/height)
	if rows < height*fewestOfThread && rows < mostOfThread {
		return 0
	}
	perThread, grid := ceilDiv(rows, height), ceilDiv(outputs, width)
	target := r.multiprocessors * (r.threads / (width * height))
	if perThread < mostOfThread || grid > target {
		return 0
	}
	blocks := max(min(ceilDiv(target, grid), ceilDiv(perThread, fewestOfThread)),
		ceilDiv(perThread, mostOfThread))
	if blocks <= 1 {
		return 0
	}
	bytes := partialBytes * float64(columns) * float64(blocks) * float64(width*vector)
	return uint64(math.Min(bytes, trace.TooLarge))
}

// vectorOf is how many columns a thread loads at once.
func vectorOf(columns int64) int64 { return min(columns&-columns, 4) }

// floorPower is the largest power of two up to n, which is positive.
func floorPower(n int64) int64 { return 1 << (bits.Len64(uint64(n)) - 1) }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// A layer norm's gradients of weight and bias, over more rows than these and with too few columns
// to keep the GPU busy, are summed in blocks of rows first
// (ConfigureAndLaunchGammaBetaBackwardKernel in aten/src/ATen/native/cuda/layer_norm_kernel.cu).
const (
	normRows    = 64 << 10
	normTile    = 32       // rows, and columns, of a block
	normMostRun = 32 << 10 // blocks in all
)

// normBlocks returns the blocks of rows that a rows × columns layer norm's gradients are summed in,
// 0 where there are none.
func (r Rules) normBlocks(columns int64, rows uint64) int64 {
	if rows <= normRows || rows >= trace.TooLarge || columns/normTile >= r.multiprocessors/2 {
		return 0
	}
	return min(normMostRun/ceilDiv(columns, normTile), ceilDiv(int64(rows), normTile))
}
