package reduction

import (
	"math"
	"math/bits"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

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
