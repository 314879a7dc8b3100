package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const gb = 1e9

// run tells a Forecaster of a training on a card of 16 GB in random order; change alters each step
// before it is told.
func run(steps int, change func(i int, s *runlog.Step)) *Forecaster {
	w, rng := New(1), rand.New(rand.NewPCG(1, 2))
	for i := 1; i <= steps; i++ {
		s := normalStep(i, rng)
		if change != nil {
			change(i, &s)
			if s.PeakAllocated > s.Reserved { // the cache grows with what is needed
				s.DriverFree -= s.PeakAllocated - s.Reserved
				s.Reserved = s.PeakAllocated
			}
		}
		w.Step(s)
	}
	return w
}

func normalStep(i int, rng *rand.Rand) runlog.Step {
	padded := 40 + 80*rng.Float64()
	level := 4*gb + 64000*padded
	return runlog.Step{
		Number: uint64(i), AtS: 3 * float64(i), Kind: runlog.KindTrain, SpentS: 3, PaddedS: padded, LongestS: padded / 4, GPU: 0,
		Allocated: level, PeakAllocated: level + 40e6*padded, Reserved: 9.2 * gb, PeakReserved: 9.2 * gb, DriverFree: 6.4 * gb, Total: 16 * gb,
	}
}

func only(t *testing.T, w *Forecaster) runlog.Alert {
	t.Helper()
	alerts := w.Alerts()
	require.Len(t, alerts, 1)
	return alerts[0]
}

func TestNormalTrainingIsQuiet(t *testing.T) {
	assert.Empty(t, run(5000, nil).Alerts())
}

// leaking is a training whose memory grows by 38 MB with each of so many steps after the 420th.
func leaking(steps, growing int) *Forecaster {
	return run(steps, func(i int, s *runlog.Step) {
		grown := 38e6 * float64(min(max(0, i-420), growing))
		s.Allocated += grown
		s.PeakAllocated += grown
	})
}

func TestLeakSinceTheStepItBegan(t *testing.T) {
	w := leaking(500, 500)
	a := only(t, w)
	assert.Equal(t, runlog.AlertLeak, a.Kind)
	assert.Equal(t, runlog.SeverityWarn, a.Severity)
	assert.InDelta(t, 420, float64(*a.Since), 3)
	assert.InEpsilon(t, 38e6, *a.PerStep, 0.03)
	// 15.6 GB in all, 4 GB of level, 3 GB grown, at most 4.8 GB for a step.
	assert.InDelta(t, (15.6-4-38e-3*80-4.8)/38e-3, *a.Steps, 5)
	assert.InEpsilon(t, 3**a.Steps, *a.Seconds, 1e-9)
	assert.Regexp(t, `^GPU memory grows 36\.\d MiB/step since step 4\d\d: out of memory in about \d+ steps \(\d+ min\)$`, a.Text)
	assert.Contains(t, a.Advice, ".item()")
	assert.EqualValues(t, 1, w.Changes())
}

func TestLeakBecomesCriticalOrEnds(t *testing.T) {
	w := leaking(592, 592)
	assert.Equal(t, runlog.SeverityCritical, only(t, w).Severity)
	assert.EqualValues(t, 2, w.Changes())
	w = leaking(800, 60)
	a := only(t, w)
	require.NotNil(t, a.ClearedS)
	assert.Less(t, *a.ClearedS, 3*700.0)
	assert.EqualValues(t, 2, w.Changes())
}

func TestJumpsAreNoLeak(t *testing.T) {
	for name, steps := range map[string][]int{"one": {300}, "two": {300, 330}, "at the start": {2}, "three": {100, 700, 720}} {
		w := run(2000, func(i int, s *runlog.Step) {
			for _, jump := range steps {
				if i >= jump {
					s.Allocated += 0.6 * gb
					s.PeakAllocated += 0.6 * gb
				}
			}
		})
		assert.Empty(t, w.Alerts(), name)
	}
}

func TestLeakWhileTheCapacityIsNotKnown(t *testing.T) {
	w := run(700, func(i int, s *runlog.Step) {
		s.Allocated += 38e6 * float64(i)
		s.DriverFree = math.NaN()
	})
	assert.Empty(t, w.Alerts(), "without an end there is nothing to foresee")
}

func TestFullCountsTheCacheAsFree(t *testing.T) {
	w := run(200, func(_ int, s *runlog.Step) { s.Reserved, s.DriverFree = 15.5*gb, 0.1*gb })
	assert.Empty(t, w.Alerts())
	w = run(200, func(_ int, s *runlog.Step) {
		s.Reserved, s.DriverFree = 15.5*gb, 0.1*gb
		s.PeakAllocated = 15.4 * gb
	})
	a := only(t, w)
	assert.Equal(t, runlog.AlertFull, a.Kind)
	assert.Nil(t, a.Steps)
	assert.Nil(t, a.Since)
}

func second(atS, hostUsed, workers float64) runlog.Second {
	return runlog.Second{
		AtS: atS, HostTotal: 64 * gb, ShmTotal: 8 * gb,
		HostReading: runlog.HostReading{HostAvailable: 64*gb - hostUsed, TreeRSS: 10*gb + workers, WorkersRSS: workers, ShmUsed: 1 * gb},
	}
}

func TestHostAndWorkers(t *testing.T) {
	for _, row := range []struct {
		name, want string
		second     func(i float64) runlog.Second
	}{
		{"host", runlog.AlertHostRAM, func(i float64) runlog.Second { return second(i, 20*gb+20e6*i, 4*gb) }},
		{"workers", runlog.AlertWorkersRAM, func(i float64) runlog.Second { return second(i, 20*gb+20e6*i, 4*gb+20e6*i) }},
		{"shm", runlog.AlertShm, func(i float64) runlog.Second {
			s := second(i, 20*gb, 4*gb)
			s.ShmUsed += 3e6 * i
			return s
		}},
		{"nearly none", runlog.AlertHostRAM, func(float64) runlog.Second { return second(0, 63*gb, 4*gb) }},
		{"swap", runlog.AlertSwap, func(i float64) runlog.Second {
			s := second(i, 57.5*gb, 4*gb)
			s.SwapUsed = 20e6 * i
			return s
		}},
		{"steady", "", func(i float64) runlog.Second { return second(i, 50*gb+0.3*gb*math.Sin(i), 4*gb) }},
		{"starting workers", "", func(i float64) runlog.Second { return second(i, 30*gb+0.5*gb*min(i, 40), 0.5*gb*min(i, 40)) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := New(0)
			w.Step(runlog.Step{Kind: runlog.KindTrain, GPU: -1})
			for i := range 1800 {
				w.Second(row.second(float64(i)))
			}
			if row.want == "" {
				require.Empty(t, w.Alerts())
				return
			}
			a := only(t, w)
			assert.Equal(t, row.want, a.Kind)
			assert.Equal(t, -1, a.GPU)
			assert.NotEmpty(t, a.Advice)
		})
	}
}

func TestHostileNumbersNeitherPanicNorComeOut(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 1e300, 1e-300, 5e17, 1e10}
	rng := rand.New(rand.NewPCG(3, 4))
	pick := func() float64 { return odd[rng.IntN(len(odd))] }
	w := New(3)
	for i := range 20000 {
		w.Step(runlog.Step{
			Number: rng.Uint64() >> rng.IntN(64), AtS: pick(), Kind: []string{"train", "evaluation", "checkpoint", "?"}[rng.IntN(4)],
			SpentS: pick(), PaddedS: pick(), LongestS: pick(), GPU: rng.IntN(6) - 2, Allocated: pick(), Reserved: pick(), PeakAllocated: pick(),
			PeakReserved: pick(), DriverFree: pick(), Total: pick(),
		})
		w.Second(runlog.Second{
			AtS: pick(), HostTotal: pick(), ShmTotal: pick(), GPUs: make([]runlog.GPUSecond, i%7),
			HostReading: runlog.HostReading{HostAvailable: pick(), SwapUsed: pick(), TreeRSS: pick(), WorkersRSS: pick(), ShmUsed: pick()},
		})
	}
	checkFinite(t, w.Alerts())
}

func checkFinite(t *testing.T, alerts []runlog.Alert) {
	t.Helper()
	for i, a := range alerts {
		for _, p := range []*float64{&a.AtS, a.SinceS, a.PerStep, a.PerS, a.Steps, a.Seconds, a.ClearedS} {
			if p != nil && (math.IsNaN(*p) || math.IsInf(*p, 0)) {
				t.Fatalf("not finite: %+v", a)
			}
		}
		if i > 0 && alerts[i-1].ID >= a.ID || a.Text == "" || a.Advice == "" {
			t.Fatalf("alert %d: %+v", i, a)
		}
	}
}

// FuzzForecaster reads steps and seconds out of bytes.
func FuzzForecaster(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), uint8(3))
	f.Fuzz(func(t *testing.T, raw []byte, gpus uint8) {
		w := New(int(gpus))
		number := func() float64 {
			if len(raw) < 2 {
				return math.NaN()
			}
			v := float64(int8(raw[0])) * math.Pow(10, float64(int8(raw[1]))/6)
			raw = raw[2:]
			return v
		}
		for len(raw) > 1 {
			w.Step(runlog.Step{AtS: number(), Kind: runlog.KindTrain, GPU: 0, Allocated: number(), Reserved: number(), PeakAllocated: number(),
				PaddedS: number(), DriverFree: number(), Total: number()})
			w.Second(runlog.Second{AtS: number(), HostTotal: number(), ShmTotal: number(), HostReading: runlog.HostReading{HostAvailable: number(), ShmUsed: number()},
				GPUs: []runlog.GPUSecond{{Total: number(), Free: number(), Others: number()}}})
		}
		checkFinite(t, w.Alerts())
	})
}

func TestManyThreads(t *testing.T) {
	w := New(4)
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for n := range 500 {
				w.Step(runlog.Step{Number: uint64(n), AtS: float64(n), Kind: runlog.KindTrain, GPU: i, Allocated: float64(n) * 1e8, Reserved: 6e10, DriverFree: 1e10, Total: 8e10})
				w.Second(second(float64(n), 1e10, 0))
				w.Alerts()
				w.Changes()
			}
		}()
	}
	wait.Wait()
	assert.Len(t, w.Alerts(), 4)
}

func TestAlertsAreBounded(t *testing.T) {
	b := &New(1).alerts
	for i := range 2000 {
		atS := float64(i) * 1000
		b.raise(atS, runlog.Alert{Kind: runlog.AlertFull, GPU: i % 3, Text: fmt.Sprint(i), Advice: "x"})
		if i%3 > 0 {
			b.clear(atS+500, runlog.AlertFull, i%3)
		}
	}
	assert.LessOrEqual(t, len(b.alerts), maxAlerts)
	assert.True(t, b.isOpen(runlog.AlertFull, 0))
	assert.Nil(t, b.alerts[b.open[key{runlog.AlertFull, 0}]].ClearedS)
}
