package reduction

import "github.com/asrconfig/asrconfig-go/core/memory/trace"

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
