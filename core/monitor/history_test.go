package monitor

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filled returns a monitor that never started, with a history of samples: host used is 10, except
// at one sample.
func filled(samples, peakAt int, peak float64) *Monitor {
	m := &Monitor{history: newHistory(1)}
	for i := range samples {
		host := 10.0
		if i == peakAt {
			host = peak
		}
		m.history.add(float64(i), []float64{host, float64(i)})
	}
	return m
}

func TestHistoryKeepsEveryPeakAtEveryLength(t *testing.T) {
	for _, samples := range []int{1, 2, 100, maxPoints, maxPoints + 1, 2*maxPoints + 1, 5 * maxPoints} {
		for _, limit := range []int{0, 1, 7, 500} {
			m := filled(samples, samples/3, 99)
			h := m.History(limit)
			points := len(h.TimesS)
			require.LessOrEqual(t, points, maxPoints)
			if limit > 0 {
				require.LessOrEqual(t, points, limit)
			}
			require.Len(t, h.HostUsedBytes, points)
			require.Len(t, h.GPUs[0].UsedBytes, points)
			assert.True(t, slices.IsSorted(h.TimesS))
			assert.Zero(t, h.TimesS[0])
			assert.Equal(t, float64(samples-1), h.GPUs[0].UsedBytes[points-1], "the newest sample is there")
			assert.Equal(t, (samples+h.SamplesAPoint-1)/h.SamplesAPoint, points)
			for i, at := range h.TimesS {
				assert.Equal(t, float64(i*h.SamplesAPoint), at)
			}
			peaks := 0
			for _, used := range h.HostUsedBytes {
				if used == 99 {
					peaks++
				}
			}
			assert.Equal(t, 1, peaks, "%d samples in %d points", samples, points)
		}
	}
}

func TestHistoryMarksGaps(t *testing.T) {
	m, absent := &Monitor{history: newHistory(1)}, math.NaN()
	for i, used := range []float64{5, absent, absent, absent, 7, absent} {
		m.history.add(float64(i), []float64{1, used})
	}
	text, err := json.Marshal(m.History(0))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"gpus":[{"total_bytes":0,"used_bytes":[5,null,null,null,7,null]}]`)
	text, err = json.Marshal(m.History(3).GPUs[0].UsedBytes)
	require.NoError(t, err)
	assert.JSONEq(t, `[5, null, 7]`, string(text), "a gap is filled only by a neighbour")
}

func TestHistoryOfALiveMonitor(t *testing.T) {
	m := started(t, &fakeGPUs{used: []uint64{400}}, steadyHost)
	eventually(t, m, func(s Stats) bool { return s.Samples > 5 })
	h := m.History(0)
	assert.Equal(t, uint64(64), h.HostTotalBytes)
	assert.Equal(t, uint64(1000), h.GPUs[0].TotalBytes)
	assert.Equal(t, 24.0, h.HostUsedBytes[0])
	assert.Greater(t, len(h.TimesS), 5)
	assert.Less(t, h.TimesS[0], h.TimesS[len(h.TimesS)-1])
	assert.Positive(t, h.StartUnixNanos)
}

func TestGarbageIsCollectedWhileTheHeapIsSmall(t *testing.T) {
	var before, after runtime.MemStats
	m := &Monitor{}
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 3 * collectEvery {
		m.saveMemory()
	}
	runtime.ReadMemStats(&after)
	assert.GreaterOrEqual(t, after.NumGC-before.NumGC, uint32(3))
}

func TestALargeHeapIsLeftAlone(t *testing.T) {
	held := make([]byte, 2*smallHeap)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := &Monitor{readings: collectEvery}
	for range 3 * collectEvery {
		m.saveMemory()
	}
	runtime.ReadMemStats(&after)
	assert.Equal(t, before.NumGC, after.NumGC)
	runtime.KeepAlive(held)
}
