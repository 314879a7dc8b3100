package forecast

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// sharing lets the seconds of a training pass with these uses of the cores, one after the other and
// then again.
func sharing(w *Forecaster, fromS, seconds int, uses ...runlog.CPUUse) {
	for i := range seconds {
		s := second(float64(fromS+i), 20*gb, 4*gb)
		s.CPU = uses[i%len(uses)]
		w.Second(s)
	}
}

func TestThreadsThatWaitForCoresOfOthers(t *testing.T) {
	nan, busy := math.NaN(), runlog.CPUUse{Cores: 2, Others: 0.76, Waiting: 0.76}
	for _, row := range []struct {
		name    string
		seconds int
		uses    []runlog.CPUUse
		advice  string // of the alert, "" for none
	}{
		{"two threads beside a busy process", 60, []runlog.CPUUse{busy}, "torch.set_num_threads(1) (OMP_NUM_THREADS=1 "},
		{"beside ten", 60, []runlog.CPUUse{{Cores: 2, Others: 1.6, Waiting: 1.6}}, "torch.set_num_threads(1) "},
		{"eight threads beside one", 60, []runlog.CPUUse{{Cores: 8, Others: 0.9, Waiting: 0.9}}, "torch.set_num_threads(7) "},
		{"a container's quota", 60, []runlog.CPUUse{{Cores: 2.5, Others: 0.9, Waiting: 2}}, "torch.set_num_threads(1) "},
		{"readings that scatter", 90, []runlog.CPUUse{busy, {Cores: 2, Others: 0.9, Waiting: 1.2}, {Cores: 2, Others: 0.4, Waiting: 0.2}, busy}, "torch.set_num_threads(1) "},
		{"alone", 600, []runlog.CPUUse{{Cores: 2, Others: 0.05, Waiting: 0.13}}, ""},
		{"one thread beside a busy process", 600, []runlog.CPUUse{{Cores: 2, Others: 0.98, Waiting: 0.04}}, ""},
		{"own threads and workers beyond the cores", 600, []runlog.CPUUse{{Cores: 2, Others: 0.1, Waiting: 3}}, ""},
		{"others on a GPU's host", 600, []runlog.CPUUse{{Cores: 16, Others: 12, Waiting: 0}}, ""},
		{"a compiler for twenty seconds", 20, []runlog.CPUUse{busy}, ""},
		{"now and then", 600, []runlog.CPUUse{busy, {Cores: 2, Others: 0.9}, {Cores: 2, Others: 0.8}}, ""},
		{"no queue is counted", 600, []runlog.CPUUse{{Cores: 2, Others: 1.5, Waiting: nan}}, ""},
		{"nothing is known", 600, []runlog.CPUUse{{Cores: nan, Others: nan, Waiting: nan}}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := New(0)
			sharing(w, 0, 100, busy) // before the first step others may be the dataset's workers
			w.Step(runlog.Step{Kind: runlog.KindTrain, GPU: -1})
			sharing(w, 100, row.seconds, row.uses...)
			if row.advice == "" {
				require.Empty(t, w.Alerts())
				return
			}
			a := only(t, w)
			assert.Equal(t, []any{runlog.AlertCPU, runlog.SeverityWarn, -1}, []any{a.Kind, a.Severity, a.GPU})
			assert.Contains(t, a.Advice, row.advice)
			assert.Nil(t, a.ClearedS)
		})
	}
}

func TestContentionEndsWithTheOtherProcess(t *testing.T) {
	w := New(0)
	w.Step(runlog.Step{Kind: runlog.KindTrain, GPU: -1})
	sharing(w, 0, 60, runlog.CPUUse{Cores: 2, Others: 0.76, Waiting: 0.76})
	assert.Equal(t, "Other processes use 0.8 of 2 CPU cores, and on average 0.8 threads of this training wait for one", only(t, w).Text)
	sharing(w, 60, 30, runlog.CPUUse{Cores: 2, Others: 0.4, Waiting: 0.4})
	assert.Nil(t, only(t, w).ClearedS, "less, but not over")
	sharing(w, 90, 30, runlog.CPUUse{Cores: 2, Others: 0.02, Waiting: 0.1})
	assert.NotNil(t, only(t, w).ClearedS)
}
