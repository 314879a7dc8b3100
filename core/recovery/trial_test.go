package recovery

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// trialsFor is how many it takes to find fits, the largest that does, where memory is measured
// by peak, or not at all.
func trialsFor(t *testing.T, fits int, r TrialRequest, peak func(int) uint64, base uint64) int {
	t.Helper()
	for count := 0; ; count++ {
		next, err := ChooseTrial(r)
		require.NoError(t, err)
		if next.Size == nil {
			require.Equal(t, min(max(fits, r.Low-1), r.High), next.Fits)
			return count
		}
		require.Less(t, count, 40)
		trial := Trial{Size: *next.Size, Fits: *next.Size <= fits}
		if trial.Fits && r.LimitBytes != nil {
			bytes := peak(*next.Size)
			trial.PeakBytes, trial.BaseBytes = &bytes, &base
		}
		r.Trials = append(r.Trials, trial)
	}
}

// alongALine counts trials on a device where memory grows by a straight line.
func alongALine(t *testing.T, fits, start, low, high int, measured bool) int {
	t.Helper()
	const base = 3 << 30
	slope := uint64(40<<30) / uint64(max(1, fits))
	limit := base + slope*uint64(fits) + slope/2
	r := TrialRequest{Low: low, High: high, Start: start}
	if measured {
		r.LimitBytes = &limit
	}
	return trialsFor(t, fits, r, func(size int) uint64 { return base + slope*uint64(size) }, base)
}

func TestAGoodStartSavesTrials(t *testing.T) {
	for _, c := range []struct {
		off                 float64 // by how much the start is off
		measured, elsewhere int     // most trials for 4 to 256 samples
	}{{0, 2, 2}, {0.1, 4, 10}, {-0.1, 3, 10}, {0.3, 4, 10}, {-0.3, 3, 13}, {1, 3, 13}, {-0.5, 3, 12}} {
		t.Run(fmt.Sprint(c.off), func(t *testing.T) {
			worst := [2]int{}
			for size := 4; size <= 256; size *= 2 {
				start := int(float64(size)*(1+c.off) + 0.5)
				worst[0] = max(worst[0], alongALine(t, size, start, 1, 4096, true))
				worst[1] = max(worst[1], alongALine(t, size, start, 1, 4096, false))
			}
			require.Equal(t, [2]int{c.measured, c.elsewhere}, worst)
		})
	}
}

func TestEveryAnswerIsFoundFromEveryStart(t *testing.T) {
	for _, measured := range []bool{true, false} {
		for fits := range 45 {
			for _, start := range []int{1, 3, 17, 40} {
				require.LessOrEqual(t, alongALine(t, fits, start, 1, 40, measured), 10)
			}
		}
		require.LessOrEqual(t, alongALine(t, 100, 1, 1, 4096, measured), 14)
		require.LessOrEqual(t, alongALine(t, 3, 9, 8, 4096, measured), 3, "none fits")
	}
	require.LessOrEqual(t, alongALine(t, 100, 1, 1, 4096, true), 5)
}

func TestMemoryThatGrowsByNoLineOnlyCostsTrials(t *testing.T) {
	limit := uint64(1e9)
	for fits := 1; fits < 300; fits += 7 {
		r := TrialRequest{Low: 1, High: 4096, Start: 50, LimitBytes: &limit}
		trialsFor(t, fits, r, func(size int) uint64 {
			if size%2 == 1 {
				return 1e6
			}
			return 9e8
		}, 1e5)
	}
}

func TestTrialsRefuse(t *testing.T) {
	for _, r := range []TrialRequest{
		{Low: 0, High: 4}, {Low: 5, High: 4}, {Low: 1, High: 1 << 20},
		{Low: 1, High: 4, Trials: make([]Trial, 1001)},
	} {
		_, err := ChooseTrial(r)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
	}
}
