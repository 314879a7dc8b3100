package reduction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

func sum(columns uint32) trace.Unit { return trace.Unit{Count: trace.ColumnSum, Columns: columns} }

// TestColumnSum holds the rule to what torch 2.15 asks for on an A100.
func TestColumnSum(t *testing.T) {
	for _, c := range []struct {
		rows    uint64
		columns uint32
		bytes   uint64
	}{
		{996, 1024, 0},
		{5992, 1024, 49283072},
		{5992, 4096, 113246208},
		{1500, 768, 9437184},
		{12000, 3072, 113246208},
		{23968, 1280, 113377280},
		{400, 51865, 0},
		{3000, 40, 0},
		{5992, 40, 122880},
		{100000, 512, 113246208},
		{1996, 512, 8388608},
		{31996, 512, 113246208},
		{0, 512, 0},
		{1, 1, 0},
	} {
		require.Equal(t, c.bytes, GPU{}.Rules().Bytes(c.rows, sum(c.columns)), "%d x %d", c.rows, c.columns)
		require.Equal(t, c.rows, GPU{}.Rules().Bytes(c.rows, trace.Unit{}), "bytes as they are")
	}
}

// TestColumnSumEverywhere: no shape or GPU in range divides by zero or overflows, and what no
// machine has stays so.
func TestColumnSumEverywhere(t *testing.T) {
	for _, multiprocessors := range []int{1, 132, maxMultiprocessors} {
		for _, threads := range []int{leastThreads, 1536, maxThreads} {
			r := GPU{&multiprocessors, &threads}.Rules()
			for _, columns := range []int64{1, 2, 3, 6, 40, 1 << 20, trace.MaxColumns - 1, trace.MaxColumns} {
				for rows := uint64(1); rows < trace.TooLarge; rows *= 2 {
					for _, n := range []uint64{rows, 2*rows - 1} {
						require.LessOrEqual(t, r.columnSum(columns, n), uint64(trace.TooLarge))
					}
				}
				require.Equal(t, uint64(trace.TooLarge), r.columnSum(columns, trace.TooLarge))
			}
		}
	}
}

// TestNormBlocks: rows and columns as XLS-R's feature extractor has them, on an A100 and on a card
// too small to split them.
func TestNormBlocks(t *testing.T) {
	few := 16
	for op, c := range map[string]struct {
		rows, a100, small uint64
	}{
		"norm_blocks:4:512":  {191992, 2048 * 512 * 4, 0},
		"norm_blocks:2:512":  {191992, 2048 * 512 * 2, 0},
		"norm_sum:512":       {191992, 8388608, 0},
		"norm_blocks:4:500":  {65568, 2048 * 500 * 4, 0},
		"norm_blocks:4:100":  {65537, 2049 * 100 * 4, 2049 * 100 * 4},
		"norm_blocks:4:1024": {65536, 0, 0},
		"norm_sum:1024":      {65536, 0, 0},
		"norm_blocks:4:4096": {1 << 20, 0, 0}, // wide enough to keep every multiprocessor busy
	} {
		parsed, err := trace.ParseOp(op)
		require.NoError(t, err)
		require.Equal(t, c.a100, GPU{}.Rules().Bytes(c.rows, parsed.Unit), op)
		require.Equal(t, c.small, GPU{Multiprocessors: &few}.Rules().Bytes(c.rows, parsed.Unit), op)
	}
	_, err := trace.ParseOp("norm_blocks:4:x")
	require.ErrorContains(t, err, "from 1 to 2147483648")
}
