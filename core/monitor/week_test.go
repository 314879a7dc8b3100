package monitor

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/forecast"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// handClock is a clock that the test sets.
type handClock struct {
	since, slept, jumped time.Duration
}

func (c *handClock) Since() time.Duration  { return c.since }
func (c *handClock) Wall() time.Time       { return time.Unix(1000, 0).Add(c.since + c.slept + c.jumped) }
func (c *handClock) Asleep() time.Duration { return c.slept }

// working is a node of GPUs and a host whose figures the test sets, and a forecaster that writes
// down what it hears.
type working struct {
	used    []uint64
	total   uint64
	host    runlog.HostReading
	cpu     runlog.CPUUse
	gpus    []runlog.GPUReading
	events  []runlog.Event
	seconds []runlog.Second
	steps   []runlog.Step
	raised  []runlog.Alert
	reads   int
}

func newWorking(gpus int) *working {
	w := &working{used: make([]uint64, gpus), total: 80 << 30, host: runlog.NoHostReading()}
	for range gpus {
		w.gpus = append(w.gpus, runlog.NoGPUReading())
	}
	return w
}

func (w *working) Count() int { return len(w.used) }
func (w *working) Close()     {}
func (w *working) Memory(i int) (used, total, free uint64, err error) {
	w.reads++
	return w.used[i], w.total, w.total - w.used[i], nil
}
func (w *working) Properties(int) runlog.GPU { return runlog.GPU{Name: "card"} }
func (w *working) Activity(i int) (runlog.GPUReading, []runlog.Event) {
	return w.gpus[i], w.events
}

type workingHost struct{ w *working }

func (h workingHost) Properties() runlog.Host { return runlog.Host{CPUs: 8, ShmTotalBytes: 64} }
func (h workingHost) Activity() (runlog.HostReading, []runlog.Event) {
	return h.w.host, nil
}
func (h workingHost) CPUUse() runlog.CPUUse { return h.w.cpu }

func (w *working) Second(s runlog.Second) { w.seconds = append(w.seconds, s) }
func (w *working) Step(s runlog.Step)     { w.steps = append(w.steps, s) }
func (w *working) Alerts() []runlog.Alert { return w.raised }
func (w *working) Changes() uint64        { return uint64(len(w.raised)) }
func (w *working) Check(float64, float64, []forecast.Use, forecast.Limits) forecast.Decision {
	return forecast.Decision{}
}

// played returns a monitor without goroutines: the test takes its samples.
func played(t *testing.T, w *working, forecast Forecaster) (*Monitor, *handClock) {
	t.Helper()
	clock := &handClock{}
	m, err := prepare(Config{GPU: w, Host: steadyHost, Watcher: workingHost{w}, Forecast: forecast, Interval: 100 * time.Millisecond}, clock, 1)
	require.NoError(t, err)
	return m, clock
}

const mostBytes = 8 << 20 // of a week's run log, in memory and as a file

// held is what the tables of a monitor take when they are full.
func held(gpus int) uintptr {
	fast := (2 + uintptr(gpus)) * maxPoints * 8
	slow := maxRows * (8 + 4*uintptr(len(mergings(gpus))))
	events := maxEvents * (unsafe.Sizeof(runlog.Event{}) + maxEventText)
	alerts := maxAlerts * (unsafe.Sizeof(runlog.Alert{}) + 1024)
	return fast + slow + maxSteps*unsafe.Sizeof(stepEntry{}) + 2*events + alerts
}

func TestTheTablesOfEveryNodeFit(t *testing.T) {
	for _, gpus := range []int{0, 1, 8, MaxGPUs} {
		assert.LessOrEqual(t, held(gpus), uintptr(mostBytes), "%d GPUs", gpus)
	}
	assert.Greater(t, held(8), uintptr(2<<20), "a sum that forgot something")
}

// TestAWeek plays seven days of 8 GPUs at ten samples a second, with a step every second, and looks
// for each peak.
func TestAWeek(t *testing.T) {
	week, gpus := 7*24*3600, 8
	if underRace {
		week /= 14
	}
	w := newWorking(gpus)
	m, clock := played(t, w, nil)
	used := make([]float64, 1+gpus) // of the host and the GPUs
	// the sample that is the highest of a GPU
	spikeAt := func(gpu int) int { return week / (gpu + 2) * 10 }
	for sample := 1; sample < week*10; sample++ {
		used[0] = float64(sample % 777)
		for gpu := range gpus {
			if used[1+gpu] = float64(sample % 1000); sample == spikeAt(gpu) {
				used[1+gpu] = 5000 + float64(gpu)
			}
		}
		m.history.add(float64(sample)/10, used)
		if sample%10 > 0 {
			continue
		}
		clock.since = time.Duration(sample) * 100 * time.Millisecond
		w.host.SwapUsed = math.NaN()
		if sample == week*3 {
			w.host.SwapUsed = 1 << 20
		}
		for gpu := range w.gpus { // figures with as many digits as there are
			share := float64(sample%999) / 999
			w.gpus[gpu] = runlog.GPUReading{
				Utilization: share, MemoryBusy: share / 3, PowerW: 300 * share, Temperature: 50 + 9*share, ClockMHz: 1410.5, Throttle: 1,
				PCIeIn: 1e9 * share, PCIeOut: 1e8 * share, NVLink: 1e11 * share, Others: 4e10 * share,
			}
		}
		m.sampleGPUs(w)
		m.second()
		m.Step(runlog.Step{Number: uint64(sample / 10), Kind: runlog.KindTrain, GPU: -1, SpentS: 1, PeakAllocated: float64(sample % 77)})
		if sample%36000 == 0 {
			m.Step(runlog.Step{Number: uint64(sample / 10), Kind: runlog.KindCheckpoint, GPU: -1, SpentS: math.NaN()})
			m.Record(runlog.EventTraining, -1, "checkpoint")
		}
	}
	s := m.Log()
	assert.InDelta(t, float64(week), s.DurationS, 1)
	for gpu, column := range s.Memory.GPUUsed {
		assert.Equal(t, float64(5000+gpu), highestOf(column), "the peak of GPU %d", gpu)
		assert.LessOrEqual(t, len(column), maxPoints)
		assert.Greater(t, len(column), maxPoints/2)
	}
	assert.Equal(t, 776.0, highestOf(s.Memory.HostUsed))
	assert.Equal(t, float64(1<<20), highestOf(s.Activity.SwapUsed))
	assert.InDelta(t, 4e10*998/999, highestOf(s.Activity.GPUs[7].Others), 4096)
	sum := 0.0
	for _, share := range s.Activity.GPUs[0].Utilization[1:] {
		sum += share
	}
	assert.InDelta(t, 0.5, sum/float64(len(s.Activity.TimesS)-1), 0.05, "means")
	assert.Equal(t, 76.0, highestOf(s.Steps.PeakAllocated))
	covered, checkpoints := map[string]int{}, 0
	for i, kind := range s.Steps.Kind {
		covered[kind] += s.Steps.Covers[i]
	}
	for _, e := range s.Events {
		if e.Kind == runlog.EventTraining {
			checkpoints++
		}
	}
	assert.Equal(t, map[string]int{runlog.KindTrain: week - 1, runlog.KindCheckpoint: (week - 1) / 3600}, covered, "no step is lost")
	assert.Equal(t, (week-1)/3600, checkpoints)
	assert.IsIncreasing(t, s.Memory.TimesS)
	assert.IsIncreasing(t, s.Activity.TimesS)
	assert.IsNonDecreasing(t, s.Steps.TimesS)
	path := filepath.Join(t.TempDir(), "run.json")
	require.NoError(t, runlog.Save(path, &s))
	file, err := os.Stat(path)
	require.NoError(t, err)
	assert.Less(t, file.Size(), int64(mostBytes))
}

func highestOf(c runlog.Column) float64 {
	highest := math.Inf(-1)
	for _, value := range c {
		if value > highest {
			highest = value
		}
	}
	return highest
}
