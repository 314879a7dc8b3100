package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

const enough = 40 << 20

func fits(t *testing.T, m *Model, s trace.Shape, limit uint64) bool {
	t.Helper()
	r := at(s)
	r.LimitBytes, r.KeepCache = &limit, true
	return *simulated(t, m, r).Fits
}

func largestOf(limit uint64, exactly bool, lengths ...int64) LargestRequest {
	r := LargestRequest{Near: 1, Most: 1000, Exactly: exactly, ByBatch: true, Device: Device{LimitBytes: &limit}}
	for _, length := range lengths {
		r.Rows = append(r.Rows, LargestRow{Length: length, Labels: 10})
	}
	return r
}

func TestLargestIsTheLastThatFits(t *testing.T) {
	m := opened(t, tracetest.Usual(1))
	r := largestOf(enough, true, 1000, 2000, 3000, 4000, 9000, 90_000_000)
	answer, err := m.Largest(r, nil)
	require.NoError(t, err)
	require.Nil(t, answer.Missing)
	for i, batch := range answer.Batches[:5] {
		require.Positive(t, *batch)
		require.True(t, fits(t, m, shape(int64(*batch), r.Rows[i].Length, 10), enough))
		require.False(t, fits(t, m, shape(int64(*batch)+1, r.Rows[i].Length, 10), enough))
	}
	require.Zero(t, *answer.Batches[5])

	r.Near, r.Most = 7, 9
	few, err := m.Largest(r, nil)
	require.NoError(t, err)
	for i, batch := range few.Batches {
		require.Equal(t, min(9, *answer.Batches[i]), *batch)
	}
	known := 3
	r.Rows[0].Known = &known
	few, err = m.Largest(r, nil)
	require.NoError(t, err)
	require.Equal(t, 3, *few.Batches[0])
	require.LessOrEqual(t, *few.Batches[1], 3)
}

// chunkedTrace has a size in steps of the length, which no formula covers, at one length. With
// byClip it is in steps of the batch, too, so that each batch has to be traced.
func chunkedTrace(t *testing.T, byClip bool, points ...trace.Shape) *Model {
	f := tracetest.New(2)
	f.Extra = func(s trace.Shape) int64 {
		batch := s.Batch
		if byClip {
			batch = 8*s.Batch + s.Batch*s.Batch%7
		}
		return 40_000 + batch*tracetest.RoundUp(s.Length, 1000)*400
	}
	f.Run(append(points[:1:1], points...), 1) // the first window twice, as the recorder
	return opened(t, f)
}

// traced answers what is missing, as Python does, and counts recordings.
func traced(t *testing.T, m *Model, r LargestRequest, byClip bool) (Largest, int) {
	var all []*Model
	for count := 0; ; count++ {
		answer, err := m.Largest(r, func(handle uint64) (*Model, error) { return all[handle], nil })
		require.NoError(t, err)
		if answer.Missing == nil {
			return answer, count
		}
		require.Less(t, count, 30)
		row := &r.Rows[answer.Missing.Row]
		row.Traces = append(row.Traces, uint64(len(all)))
		row.RealLength, row.RealLabels = row.Length, row.Labels
		var points []trace.Shape
		for _, batch := range answer.Missing.Batches {
			points = append(points, shape(batch, row.Length, row.Labels))
		}
		all = append(all, chunkedTrace(t, byClip, points...))
		r.ByBatch = answer.ByBatch
		for i, batch := range answer.Batches {
			r.Rows[i].Known = batch
		}
	}
}

func TestLargestNamesWhatIsToBeTraced(t *testing.T) {
	m := chunkedTrace(t, false, tracetest.Shapes...)
	r := largestOf(enough, true, 2000)
	answer, err := m.Largest(r, nil)
	require.NoError(t, err)
	require.Equal(t, &Missing{0, []int64{2, 3, 5}}, answer.Missing)
	require.Nil(t, answer.Batches[0])

	answer, count := traced(t, m, r, false)
	require.Equal(t, 1, count, "three batches answer for the others")
	require.True(t, answer.ByBatch)
	exact := chunkedTrace(t, false, shapes(of{2, 2000, 10}, of{3, 2000, 10}, of{5, 2000, 10})...)
	require.True(t, fits(t, exact, shape(int64(*answer.Batches[0]), 2000, 10), enough))
	require.False(t, fits(t, exact, shape(int64(*answer.Batches[0])+1, 2000, 10), enough))

	r.Exactly = false // bounds answer
	answer, err = m.Largest(r, nil)
	require.NoError(t, err)
	require.Nil(t, answer.Missing)

	m = chunkedTrace(t, true, tracetest.Shapes...)
	answer, count = traced(t, m, largestOf(enough, true, 2000), true)
	require.False(t, answer.ByBatch)
	require.Greater(t, count, 1)
}

func TestLargestRefuses(t *testing.T) {
	m := opened(t, tracetest.Usual(1))
	for name, change := range map[string]func(*LargestRequest){
		"rows":           func(r *LargestRequest) { r.Rows = nil },
		"near":           func(r *LargestRequest) { r.Near = 0 },
		"most":           func(r *LargestRequest) { r.Most = 1 << 20 },
		"near of":        func(r *LargestRequest) { r.Near = r.Most + 1 },
		"limit_bytes":    func(r *LargestRequest) { r.LimitBytes = ptr(uint64(0)) },
		"length":         func(r *LargestRequest) { r.Rows[0].Length = 0 },
		"length exactly": func(r *LargestRequest) { r.Rows[0].Length, r.Exactly = 0, true },
	} {
		t.Run(name, func(t *testing.T) {
			r := largestOf(enough, false, 2000)
			change(&r)
			_, err := m.Largest(r, nil)
			require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
		})
	}
}
