package memory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

func FuzzSimulate(f *testing.F) {
	small := tracetest.New(1)
	small.Run(tracetest.Shapes[:3], 2)
	raw := tracetest.JSON(&small.Trace)
	f.Add(raw)
	f.Add([]byte(strings.Replace(string(raw), `"micro"`, `"iteration"`, 1)))
	f.Add([]byte(`{"format":"asrconfig-trace","version":1,"segments":[{"kind":"load","events":[0,-1],"phases":[[0,"load"]]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, err := trace.Decode(tracetest.Pack(raw))
		if err != nil {
			return
		}
		m, err := New(read)
		if err != nil {
			return
		}
		batch, length, steps := int64(2), int64(1231), 2
		r := Request{Batch: &batch, Length: &length, Steps: &steps, Timeline: 5}
		for _, kind := range []string{"train", trace.KindEvaluate} {
			r.Kind = kind
			if e, err := m.Simulate(r); err == nil {
				require.LessOrEqual(t, e.PeakRequested, e.PeakAllocated)
				require.LessOrEqual(t, e.PeakAllocated, e.PeakReserved)
			}
		}
	})
}
