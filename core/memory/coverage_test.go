package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// traceOf records windows at these shapes, the first twice.
func traceOf(shapes ...trace.Shape) *tracetest.Loop {
	f := tracetest.New(2)
	f.Run(append([]trace.Shape{shapes[0]}, shapes...), 1)
	return f
}

func ask(m *Model, s trace.Shape) error {
	_, err := m.Simulate(Request{Batch: &s.Batch, Length: &s.Length, Labels: &s.Labels})
	return err
}

func TestWhatATraceAnswers(t *testing.T) {
	three := shapes(of{2, 1231, 11}, of{3, 1943, 17}, of{5, 2792, 7})
	for name, c := range map[string]struct {
		traced   []trace.Shape
		yes, not []trace.Shape
	}{
		"larger batches only": {three, shapes(of{2, 9000, 50}, of{64, 500, 0}), shapes(of{1, 1231, 11})},
		"with batches of one": {append(three, shape(1, 1231, 13), shape(1, 2792, 19), shape(1, 1943, 5)), shapes(of{1, 7777, 3}, of{7, 7777, 3}), nil},
		"one of one":          {append(three, shape(1, 1231, 13)), shapes(of{1, 1231, 13}, of{6, 4000, 9}), shapes(of{1, 1232, 13})},
		"two shapes":          {three[:2], three[:2], shapes(of{4, 1500, 12})},
		"one batch size":      {shapes(of{4, 1231, 11}, of{4, 1943, 17}, of{4, 2792, 7}), shapes(of{4, 5000, 60}), shapes(of{3, 1231, 11}, of{1, 1231, 11})},
		"one length":          {shapes(of{2, 3000, 11}, of{3, 3000, 17}, of{5, 3000, 29}), shapes(of{9, 3000, 400}), shapes(of{2, 3001, 11})},
		"one label length":    {shapes(of{2, 1231, 20}, of{3, 1943, 20}, of{5, 2792, 20}), shapes(of{9, 4000, 20}), shapes(of{2, 1231, 21})},
		"no labels":           {shapes(of{2, 1231, 0}, of{3, 1943, 0}, of{5, 2792, 0}), shapes(of{9, 4000, 20}, of{9, 4000, 0}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := opened(t, traceOf(c.traced...))
			for _, s := range c.yes {
				require.NoError(t, ask(m, s), "%+v", s)
			}
			for _, s := range c.not {
				err := ask(m, s)
				require.ErrorContains(t, err, "the trace does not determine", "%+v", s)
				require.Equal(t, fault.Unsupported, fault.From(err).Code)
				require.Contains(t, fault.From(err).Hint, "trace the shape (")
			}
		})
	}
}

func TestAccumulationThatWasNotTraced(t *testing.T) {
	m := opened(t, tracetest.Usual(1))
	two := 2
	_, err := m.Simulate(Request{Batch: &tracetest.Shapes[0].Batch, Length: &tracetest.Shapes[0].Length, Accumulation: &two})
	require.Equal(t, fault.Unsupported, fault.From(err).Code)
	require.Contains(t, fault.From(err).Hint, "accumulation")
}
