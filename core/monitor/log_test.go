package monitor

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const gib = 1 << 30

// step is a train step with PyTorch's counters on GPU 0.
func step(number uint64, allocated, reserved float64) runlog.Step {
	return runlog.Step{Number: number, Kind: runlog.KindTrain, Allocated: allocated, Reserved: reserved, PeakAllocated: allocated,
		PeakReserved: reserved, SpentS: 1, WaitedS: math.NaN(), AudioS: math.NaN(), PaddedS: math.NaN(), LongestS: math.NaN()}
}

func headroomOf(m *Monitor) float64 { return float64(statsOf(m).GPU[0].Headroom) / gib }

func TestAFullCacheIsNoFalseAlarm(t *testing.T) {
	w := newWorking(1)
	w.used[0] = 78 * gib
	m, _ := played(t, w, nil)
	assert.Equal(t, 2.0, headroomOf(m), "before the first step only the driver is known")
	m.Step(step(1, 20*gib, 77*gib))
	assert.Equal(t, 2.0+57, headroomOf(m))
	assert.Equal(t, runlog.Column{59 * gib}, m.Log().Steps.Headroom)
}

func TestANearOutOfMemoryIsNotHidden(t *testing.T) {
	w := newWorking(1)
	w.used[0] = 20 * gib
	m, clock := played(t, w, w)
	m.Step(step(1, 10*gib, 19*gib))
	assert.Equal(t, 60.0+9, headroomOf(m))

	// PyTorch takes 59 GiB more and fills them before the next sample: the step asks the driver
	// itself.
	w.used[0] = 79 * gib
	m.Step(step(2, 78*gib, 78*gib))
	assert.Equal(t, 1.0, headroomOf(m))
	assert.Equal(t, []float64{1 * gib, 80 * gib}, []float64{w.steps[1].DriverFree, w.steps[1].Total})

	// The cache is emptied: what is free now is counted as cache no more.
	m.Step(step(3, 30*gib, 78*gib))
	assert.Equal(t, 1.0+48, headroomOf(m))
	w.used[0] = 31 * gib
	clock.since += 100 * time.Millisecond
	m.sample()
	assert.Equal(t, 49.0, headroomOf(m))

	// Another process takes what was free.
	w.used[0] = 79 * gib
	m.sample()
	m.Step(step(4, 30*gib, 30*gib))
	assert.Equal(t, 1.0, headroomOf(m))
}

func TestOnlyGrowthAsksTheDriver(t *testing.T) {
	w := newWorking(1)
	w.used[0] = 20 * gib
	m, clock := played(t, w, nil)
	m.Step(step(1, 10*gib, 19*gib))
	asked := w.reads
	for number := range uint64(100) {
		m.Step(step(number+2, float64(number)*gib/10, 19*gib))
	}
	assert.Equal(t, asked, w.reads)
	clock.since += 2 * time.Second // samples stay away: the driver may hang
	clock.jumped = 2 * time.Second
	m.Step(step(200, 10*gib, 30*gib))
	assert.Equal(t, asked, w.reads)
}

func TestAStepDoesNotAllocate(t *testing.T) {
	w := newWorking(1)
	m, _ := played(t, w, nil)
	s := step(1, gib, 2*gib)
	assert.LessOrEqual(t, testing.AllocsPerRun(2000, func() { m.Step(s) }), 0.0)
}

func TestStepsOutsideTheGPUs(t *testing.T) {
	w := newWorking(1)
	m, _ := played(t, w, w)
	for _, gpu := range []int{-1, 1, 99, -7} {
		s := step(1, gib, gib)
		s.GPU = gpu
		m.Step(s)
	}
	s := m.Log().Steps
	assert.Equal(t, []int{-1, -1, -1, -1}, s.GPU)
	assert.True(t, math.IsNaN(s.Headroom[0]) && math.IsNaN(w.steps[0].DriverFree))
	close(m.stop)
	m.Step(step(9, 1, 1))
	assert.Len(t, m.Log().Steps.Number, 4, "after the stop nothing is added")
}

func TestThinnedStepsKeepWhatMatters(t *testing.T) {
	l := newStepTable()
	for i := range 10 * maxSteps {
		s := step(uint64(i), float64(i%100), 5)
		s.AtS, s.PaddedS, s.AudioS, s.WaitedS = float64(i), float64(i%50), float64(i), 0.25
		l.add(&s, float64(1000-i%300))
		if i%2000 == 0 {
			s.Kind, s.GPU = runlog.KindEvaluation, i/2000%2
			l.add(&s, math.NaN())
		}
	}
	out := l.copy()
	train, seconds, waited, lowest := 0, 0.0, 0.0, math.Inf(1)
	for i, kind := range out.Kind {
		if kind != runlog.KindTrain {
			assert.Equal(t, 1, out.Covers[i], "what is rare stays whole")
			continue
		}
		train += out.Covers[i]
		seconds, waited, lowest = seconds+out.SpentS[i], waited+out.WaitedS[i], min(lowest, out.Headroom[i])
		if padded := math.Mod(out.AudioS[i], 50); padded != out.PaddedS[i] {
			t.Fatalf("audio and padding of different batches: %v, %v", out.AudioS[i], out.PaddedS[i])
		}
	}
	assert.Equal(t, []float64{10 * maxSteps, 10 * maxSteps, 2.5 * maxSteps, 701}, []float64{float64(train), seconds, waited, lowest})
	assert.LessOrEqual(t, len(out.Number), maxSteps)
	assert.IsNonDecreasing(t, out.TimesS)
	assert.Equal(t, uint64(10*maxSteps-1), out.Number[len(out.Number)-1])
}

func TestStepsOfTwoGPUsByTurns(t *testing.T) {
	l := newStepTable()
	for i := range 6 * maxSteps {
		s := step(uint64(i/2), 1, 1)
		s.AtS, s.GPU = float64(i), i%2
		l.add(&s, 1)
	}
	out := l.copy()
	most := 0
	for _, covers := range out.Covers {
		most = max(most, covers)
	}
	assert.LessOrEqual(t, most, 16, "old steps are no coarser than they need to be")
	assert.LessOrEqual(t, len(out.Number), maxSteps)
}

func TestTheRarestStepsNeverFillTheTable(t *testing.T) {
	l := newStepTable()
	for i := range 3 * maxSteps {
		s := step(uint64(i), 1, 1)
		s.Kind, s.GPU = []string{runlog.KindTrain, runlog.KindEvaluation, runlog.KindCheckpoint}[i%3], i/3%(MaxGPUs+1)-1
		l.add(&s, 1)
	}
	assert.LessOrEqual(t, len(l.copy().Number), maxSteps)
}

func TestRowsMergeByTheirRules(t *testing.T) {
	m := &Monitor{gpuCount: 1, seconds: newTable[float32](maxRows, mergings(1))}
	for i := range maxRows + 2 {
		host, gpu := runlog.NoHostReading(), runlog.NoGPUReading()
		host.CPUShare, host.HostAvailable, host.TreeRSS = float64(i%2), float64(100+i%2), float64(i%2)
		gpu.Throttle, gpu.Temperature = float64(1+i%2), float64(50+i%2)
		if i%2 == 0 {
			gpu.PowerW = 70
		}
		m.seconds.add(float64(i), gpu.Values(host.Values(nil)))
	}
	out := m.activitySeries()
	require.Len(t, out.TimesS, maxRows/2+1)
	for i := range out.TimesS {
		assert.Equal(t, []float64{float64(2 * i), 0.5, 100, 1}, []float64{out.TimesS[i], out.CPUShare[i], out.HostAvailable[i], out.TreeRSS[i]})
		assert.Equal(t, []float64{3, 51, 70}, []float64{out.GPUs[0].Throttle[i], out.GPUs[0].Temperature[i], out.GPUs[0].PowerW[i]})
		assert.True(t, math.IsNaN(out.Sent[i]))
	}
}

func TestEventsAreBoundedAndFair(t *testing.T) {
	var l eventLog
	l.add(runlog.Event{AtS: 1, Kind: runlog.EventTraining, Text: "begins"})
	for i := range 5 * maxEvents {
		l.add(runlog.Event{AtS: float64(i), Kind: runlog.EventXID, Text: fmt.Sprint(i)})
		l.add(runlog.Event{AtS: float64(i), Kind: runlog.EventLost, Text: "the same again"})
	}
	l.add(runlog.Event{AtS: 1e6, Kind: runlog.EventTraining, Text: string(make([]byte, 9999)) + "\xff"})
	for range 3 {
		l.add(runlog.Event{AtS: 2e6, Kind: runlog.EventUnread, Text: "/proc/stat"})
	}
	events := l.copy()
	counts := map[string]int{}
	for _, e := range events {
		counts[e.Kind]++
		assert.LessOrEqual(t, len(e.Text), maxEventText)
	}
	assert.Len(t, events, maxEvents)
	assert.Equal(t, 2, counts[runlog.EventTraining], "a flood of one kind does not wash away another")
	assert.Equal(t, 1, counts[runlog.EventUnread])
	assert.Equal(t, 5*maxEvents/quiet+1, counts[runlog.EventLost], "the same is not written again for a while")
	assert.Equal(t, "0", events[1].Text, "the first of a flood stays")
}

func TestClocks(t *testing.T) {
	clock := &handClock{}
	p := newClockWatch(clock)
	told := func(edit func()) (found []string) {
		edit()
		p.check(100*time.Millisecond, func(kind, text string) { found = append(found, kind+": "+text) })
		return found
	}
	assert.Empty(t, told(func() { clock.since += 100 * time.Millisecond }))
	assert.Equal(t, []string{"gap: no reading for 4s: the process was blocked"}, told(func() { clock.since += 4 * time.Second }))
	assert.Equal(t, []string{"gap: the machine slept for 2h0m0s"}, told(func() { clock.slept += 2 * time.Hour }))
	assert.Equal(t, []string{"clock: the wall clock jumped by -1h0m0s"}, told(func() { clock.jumped -= time.Hour }))
	assert.Equal(t, []string{"gap: the machine slept for 5s", "clock: the wall clock jumped by 1h0m0s"}, told(func() {
		clock.slept += 5 * time.Second
		clock.jumped += time.Hour
	}))
	assert.Empty(t, told(func() { clock.since += 100 * time.Millisecond }))
}

func TestALostGPULeavesAGapAndOneEvent(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{100, 100}, failing: map[int]error{}}
	clock := &handClock{}
	m, err := prepare(Config{GPU: gpu, Host: steadyHost, Interval: time.Second}, clock, 1)
	require.NoError(t, err)
	tick := func(times int) {
		for range times {
			clock.since += time.Second
			m.sample()
		}
	}
	gpu.failing[1] = errors.New("the GPU is lost")
	tick(3)
	gpu.failing[1] = nil
	tick(2)
	gpu.failing[0] = fault.New(fault.Corrupt, "", "impossible memory")
	tick(1)
	s := m.Log()
	assert.Equal(t, []runlog.Event{
		{AtS: 1, Kind: runlog.EventLost, GPU: 1, Text: "the GPU is lost"},
		{AtS: 4, Kind: runlog.EventBack, GPU: 1, Text: "the GPU answers again"},
		{AtS: 6, Kind: runlog.EventNonsense, GPU: 0, Text: "impossible memory"},
	}, s.Events)
	gaps := 0
	for _, used := range s.Memory.GPUUsed[1] {
		if math.IsNaN(used) {
			gaps++
		}
	}
	assert.Equal(t, 3, gaps)
	assert.Equal(t, uint64(4), s.Errors)
	assert.Equal(t, 6.0, s.DurationS)
}

func TestAnUnreadableHostIsNamedOnce(t *testing.T) {
	m, err := prepare(Config{Host: func() (profile.Memory, error) { return profile.Memory{}, errors.New("no /proc") }, Interval: time.Second}, &handClock{}, 1)
	require.NoError(t, err)
	for range 500 {
		m.sample()
	}
	assert.Equal(t, []runlog.Event{{Kind: runlog.EventUnread, GPU: -1, Text: "no /proc"}}, m.Log().Events)
}

func TestForecastsHearOfSecondsAndSteps(t *testing.T) {
	w := newWorking(2)
	m, clock := played(t, w, w)
	w.host.ShmUsed, w.gpus[1].Others, w.cpu = 5, 7, runlog.CPUUse{Cores: 2, Others: 1, Waiting: 0.5}
	clock.since = time.Second
	m.sampleGPUs(w)
	m.second()
	require.Len(t, w.seconds, 1)
	s := w.seconds[0]
	assert.Equal(t, []float64{1, 64, 40, 5, 64}, []float64{s.AtS, s.HostTotal, s.HostAvailable, s.ShmUsed, s.ShmTotal})
	assert.Equal(t, w.cpu, s.CPU)
	assert.Equal(t, runlog.GPUSecond{Total: 80 * gib, Free: 80 * gib, Others: 7}, s.GPUs[1])
	assert.True(t, math.IsNaN(s.GPUs[0].Others) && math.IsNaN(s.SwapUsed))
	w.raised = make([]runlog.Alert, 3)
	assert.Equal(t, uint64(3), statsOf(m).Alerts)
	assert.Len(t, m.Log().Alerts, 3)
	w.raised = make([]runlog.Alert, 9999)
	assert.Len(t, m.Log().Alerts, maxAlerts)
}

// hangingWatch is a driver whose slow readings hang.
type hangingWatch struct {
	fakeGPUs
	release chan struct{}
}

func (h *hangingWatch) Properties(int) runlog.GPU { return runlog.GPU{} }
func (h *hangingWatch) Activity(int) (runlog.GPUReading, []runlog.Event) {
	<-h.release
	return runlog.NoGPUReading(), nil
}

func TestAHangingDriverStopsNeitherTheHostNorTheStop(t *testing.T) {
	h := &hangingWatch{fakeGPUs: fakeGPUs{used: []uint64{1}}, release: make(chan struct{})}
	w := newWorking(0)
	w.host.SwapUsed = 5
	m, err := Start(Config{GPU: h, Host: steadyHost, Watcher: workingHost{w}, Interval: MinInterval})
	require.NoError(t, err)
	require.Eventually(t, func() bool { at, host, _ := m.Activity(); return at > 0 && host.SwapUsed == 5 }, patience, tick)
	m.Stop()
	assert.Zero(t, h.closings(), "a reader in use is not closed")
	close(h.release)
	require.Eventually(t, func() bool { return h.closings() == 1 }, patience, tick)
}

func TestOldReadingsOfGPUsAreNotThePresent(t *testing.T) {
	w := newWorking(1)
	m, clock := played(t, w, nil)
	w.gpus[0].PowerW = 300
	m.sampleGPUs(w)
	m.second()
	clock.since += 2 * stale // the driver hangs: nothing new comes
	m.second()
	power := m.Log().Activity.GPUs[0].PowerW
	assert.Equal(t, 300.0, power[0])
	assert.True(t, math.IsNaN(power[1]))
}

func TestLogsBesideASampler(t *testing.T) {
	w := newWorking(1)
	m, err := Start(Config{GPU: &fakeGPUs{used: []uint64{5}}, Host: steadyHost, Watcher: workingHost{w}, Interval: MinInterval})
	require.NoError(t, err)
	defer m.Stop()
	var group sync.WaitGroup
	for range 3 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range uint64(200) {
				m.Step(step(i, 1, 2))
				m.Record(runlog.EventTraining, -1, fmt.Sprint("step ", i))
				if i%20 == 0 {
					s := m.Log()
					assert.Equal(t, len(s.Memory.TimesS), len(s.Memory.GPUUsed[0]))
					assert.Equal(t, len(s.Steps.Number), len(s.Steps.Headroom))
				}
			}
		}()
	}
	group.Wait()
	assert.Equal(t, 600, len(m.Log().Steps.Number))
}
