package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// held is what a run has of these, in units of the fake model's weight.
func held(parameters, gradients, optimizer, others uint64) []peak.Holding {
	const weight = tracetest.Width * tracetest.Width * 4
	return []peak.Holding{{Component: "parameters", Bytes: parameters * weight}, {Component: "gradients", Bytes: gradients * weight},
		{Component: "optimizer", Bytes: optimizer * weight}, {Component: "others", Bytes: others * weight}}
}

func predictedOf(t *testing.T, rows []peak.Row, component string) (sum uint64) {
	t.Helper()
	for _, r := range rows {
		if r.Component == component {
			require.NotNil(t, r.Predicted)
			sum += *r.Predicted
		}
	}
	return sum
}

func TestCompareFindsTheSameMoment(t *testing.T) {
	const weight = tracetest.Width * tracetest.Width * 4
	m := opened(t, tracetest.Usual(3))
	r := at(shape(6, 4000, 30))
	peaks := simulated(t, m, r)
	for name, test := range map[string]struct {
		args CompareArgs
		want Moment
	}{
		"first step":           {CompareArgs{Phase: "forward", Held: held(3, 0, 0, 9)}, Moment{Place: peak.Place{Phase: "forward"}, Step: 1}},
		"state is there":       {CompareArgs{Phase: "forward", Held: held(3, 0, 6, 9)}, Moment{Place: peak.Place{Phase: "forward"}, Step: 2}},
		"within backward":      {CompareArgs{Phase: "backward", Held: held(3, 1, 6, 9)}, Moment{Place: peak.Place{Phase: "backward"}, Step: 2}},
		"in a module":          {CompareArgs{Phase: "forward", At: "encoder.layers.1.attention", Held: held(3, 0, 6, 9)}, Moment{Place: peak.Place{Phase: "forward", Module: "encoder.layers.1.attention"}, Step: 2}},
		"optimizer, half way":  {CompareArgs{Phase: "optimizer", Held: held(3, 3, 2, 0)}, Moment{Place: peak.Place{Phase: "optimizer"}, Step: 1}},
		"nothing known of it":  {CompareArgs{Held: held(3, 3, 6, 0)}, Moment{Step: 2}},
		"a module of no trace": {CompareArgs{Phase: "forward", At: "other", Held: held(3, 0, 0, 0)}, Moment{Place: peak.Place{Phase: "forward"}, Step: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := m.Compare(CompareRequest{Request: r, CompareArgs: test.args})
			require.NoError(t, err)
			require.Equal(t, test.want.Step, c.Moment.Step)
			if test.want.Phase != "" {
				require.Equal(t, test.want.Phase, c.Moment.Phase)
			}
			if test.want.Module != "" {
				require.Equal(t, test.want.Module, c.Moment.Module)
			}
			require.Equal(t, peak.Sum(test.args.Held), c.Held)
			require.Equal(t, uint64(3*weight), predictedOf(t, c.Rows, "parameters"))
			for i, component := range []string{"gradients", "optimizer"} {
				require.Equal(t, test.args.Held[i+1].Bytes, predictedOf(t, c.Rows, component))
			}
			require.LessOrEqual(t, *c.Predicted, peaks.PeakAllocated)
			sum := uint64(0)
			for _, r := range c.Rows {
				sum += *r.Predicted
			}
			require.Equal(t, *c.Predicted, sum)
		})
	}
}

func TestCompareWithoutAPrediction(t *testing.T) {
	c, err := CompareArgs{Held: held(1, 2, 3, 4), Rows: 2}.Unpredicted()
	require.NoError(t, err)
	require.Nil(t, c.Predicted)
	require.Nil(t, c.Moment)
	require.Len(t, c.Rows, 2)
}

// TestCompareKnowsTheSizeOfASegment: PyTorch's error names a segment of 20 MiB for a request of 1 to
// 10 MiB, unless the settings say otherwise.
func TestCompareKnowsTheSizeOfASegment(t *testing.T) {
	f := tracetest.New(3)
	f.Extra = func(trace.Shape) int64 { return 5 << 20 }
	f.Run(tracetest.Shapes, 1)
	for _, size := range []uint64{20 << 20, 2 << 20} {
		c, err := opened(t, f).Compare(CompareRequest{Request: at(shape(2, 1231, 11)),
			CompareArgs: CompareArgs{Phase: "forward", Held: held(3, 0, 6, 0), Wanted: size}})
		require.NoError(t, err)
		require.Equal(t, size == 20<<20, *c.Predicted < 5<<20, "before or after the allocation of 5 MiB: %v", c)
	}
}
