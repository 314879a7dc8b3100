package forecast

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// first returns the first alert of a kind.
func first(t *testing.T, w *Forecaster, kind string) runlog.Alert {
	t.Helper()
	for _, a := range w.Alerts() {
		if a.Kind == kind {
			return a
		}
	}
	t.Fatalf("no %s in %+v", kind, w.Alerts())
	return runlog.Alert{}
}

func TestWhatEveryEpochLeavesBehind(t *testing.T) {
	w := run(1100, func(i int, s *runlog.Step) {
		leaked := 0.8 * gb * float64(i/200)
		s.Allocated, s.PeakAllocated = s.Allocated+leaked, s.PeakAllocated+leaked
	})
	a := first(t, w, runlog.AlertLeak)
	assert.InEpsilon(t, 0.8*gb/200, *a.PerStep, 0.1)
	assert.Less(t, a.AtS, 3*640.0, "after the third jump")
}

func TestLongerAndLongerBatches(t *testing.T) {
	w := run(800, func(i int, s *runlog.Step) {
		s.PaddedS = 40 + 0.3*float64(i)
		s.PeakAllocated = 4*gb + 40e6*s.PaddedS
	})
	a := first(t, w, runlog.AlertLength)
	assert.Regexp(t, `^GPU memory grows with the length of batches since step \d+, now 2\d\d s: out of memory at about 2\d\d s, (in about \d+ steps|at any moment)`, a.Text)
	assert.Contains(t, a.Advice, "per_device_train_batch_size")
	assert.InDelta(t, 12e6, *a.PerStep, 1e6)
	assert.Empty(t, run(300, func(i int, s *runlog.Step) {
		s.PaddedS = 40 + 0.3*float64(i%100)
		s.PeakAllocated = 4*gb + 40e6*s.PaddedS
	}).Alerts(), "sorted again and again, far from the end")
}

func TestReservedMemoryOfNoUse(t *testing.T) {
	w := run(500, func(i int, s *runlog.Step) {
		s.Reserved += 10e6 * float64(i)
		s.DriverFree -= 10e6 * float64(i)
	})
	a := first(t, w, runlog.AlertFragmentation)
	assert.Contains(t, a.Advice, "expandable_segments:True")
	assert.InDelta(t, 10e6, *a.PerStep, 1e6)
	assert.Empty(t, run(500, func(i int, s *runlog.Step) { // a cache that fills and stays
		s.Reserved += 6 * gb * (1 - math.Exp(-float64(i)/20))
		s.DriverFree = 15.6*gb - s.Reserved
	}).Alerts())
}

func evaluated(w *Forecaster, atS float64, batches int, perBatch float64) {
	for i := range batches {
		w.Step(runlog.Step{
			Number: 100, AtS: atS + float64(i), Kind: runlog.KindEvaluation, GPU: 0, Allocated: 4*gb + perBatch*float64(i+1),
			PeakAllocated: 4.5*gb + perBatch*float64(i+1), Reserved: 15 * gb, DriverFree: 0.6 * gb, Total: 16 * gb,
		})
	}
}

func TestEvaluationThatGathers(t *testing.T) {
	w := run(100, nil)
	evaluated(w, 310, 40, 0.2*gb)
	a := only(t, w)
	assert.Equal(t, runlog.AlertEvaluation, a.Kind)
	assert.InDelta(t, (15.6-4.5)/0.2-40, *a.Steps, 2)
	assert.Contains(t, a.Text, "0.19 GiB of GPU memory a batch")
	assert.Contains(t, a.Advice, "eval_accumulation_steps")

	w = run(100, nil)
	evaluated(w, 310, 60, 0.01*gb)
	require.Empty(t, w.Alerts(), "seen to its end, and far from that of the memory")
	w.Step(runlog.Step{Number: 101, AtS: 400, Kind: runlog.KindTrain, Allocated: 4 * gb, PeakAllocated: 6 * gb, Reserved: 9 * gb, DriverFree: 6 * gb, Total: 16 * gb})
	evaluated(w, 500, 60, 0.01*gb)
	assert.Empty(t, w.Alerts())
}

func TestCheckpointThatWillNotFitAgain(t *testing.T) {
	w := run(100, nil)
	w.Step(runlog.Step{Number: 100, AtS: 310, Kind: runlog.KindCheckpoint, Allocated: 4 * gb, PeakAllocated: 12 * gb, Reserved: 12 * gb, DriverFree: 3.6 * gb, Total: 16 * gb})
	for i := 101; i < 140; i++ { // another process has taken 5 GB
		w.Step(runlog.Step{Number: uint64(i), AtS: 3 * float64(i), Kind: runlog.KindTrain, Allocated: 4 * gb, PeakAllocated: 8 * gb, Reserved: 9 * gb, DriverFree: 1.6 * gb, Total: 16 * gb})
	}
	a := first(t, w, runlog.AlertCheckpoint)
	assert.Regexp(t, `^The last checkpoint took 7\.4\d GiB of GPU memory, and 6\.\d\d GiB are left now`, a.Text)
	assert.Nil(t, a.ClearedS)
}

func TestAnotherProcessGrows(t *testing.T) {
	w := run(100, nil)
	for i := range 120 {
		others := 1*gb + 40e6*float64(i)
		w.Second(runlog.Second{AtS: 300 + float64(i), GPUs: []runlog.GPUSecond{{Total: 16 * gb, Used: 10*gb + others, Free: 6*gb - others, Others: others}}})
	}
	a := first(t, w, runlog.AlertOthers)
	assert.InEpsilon(t, 40e6, *a.PerS, 0.05)
	assert.Contains(t, a.Advice, "CUDA_VISIBLE_DEVICES")
}

func TestTextsOfAmounts(t *testing.T) {
	for want, got := range map[string]string{
		"1 step": counted(0.9, "step"), "2 batches": counted(2, "batch"), "in about 3 steps": timeLeft(3, math.NaN()),
	} {
		assert.Equal(t, want, got)
	}
}

func TestAClearedAlertComesBackLessAndLessOften(t *testing.T) {
	b := &New(1).alerts
	f := runlog.Alert{Kind: runlog.AlertFull}
	raised := 0
	for atS := 0.0; atS < 7200; atS += 10 { // holds for ten seconds of every twenty
		before := len(b.alerts)
		b.raise(atS, f)
		raised += len(b.alerts) - before
		b.clear(atS+5, runlog.AlertFull, 0)
	}
	assert.InDelta(t, 6, raised, 1)
	f.Seconds = pointer(5)
	b.raise(7300, f)
	assert.Equal(t, runlog.SeverityCritical, b.alerts[len(b.alerts)-1].Severity, "a critical one never waits")
}
