// Package monitor watches a training run from goroutines of its own, so that training pays one
// short read a step: memory at every sample, everything else about once a second, and the steps
// that the training tells of. All of it is kept in tables of fixed size.
package monitor

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/forecast"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// Limits of a monitor.
const (
	MaxGPUs     = 16 // further GPUs are not watched
	MinInterval = time.Millisecond
	MaxInterval = time.Minute

	// hostInterval is the least time between two readings of the host. Each opens a dozen files of
	// /proc and of the container's limits, 0.2 to 0.5 ms of processor time against microseconds for
	// a GPU: at every sample of 100 ms that alone would be 0.2 to 0.5 % of a core.
	hostInterval = 500 * time.Millisecond
	slowInterval = time.Second // of what changes slowly or costs much, at least one sample's time
	stopPatience = time.Second
)

// GPUReader reads the memory of GPUs, in bytes. *hardware.Devices is one. Its methods may be called
// together.
type GPUReader interface {
	Count() int
	Memory(i int) (used, total, free uint64, err error)
	Close()
}

// GPUWatcher is what a GPUReader may be besides: one that reads what GPUs do. Readings may take
// tens of milliseconds.
type GPUWatcher interface {
	Properties(i int) runlog.GPU
	// Activity gives what is known, and what is to be told of: errors that the driver reports,
	// functions that it lacks.
	Activity(i int) (runlog.GPUReading, []runlog.Event)
}

// HostReader reads host memory, container limits applied.
type HostReader func() (profile.Memory, error)

// HostWatcher reads what the host does. Only one goroutine calls it.
type HostWatcher interface {
	Properties() runlog.Host
	Activity() (runlog.HostReading, []runlog.Event)
	CPUUse() runlog.CPUUse // at the newest Activity
}

// Forecaster hears of everything and raises alerts. *forecast.Forecaster is one.
type Forecaster interface {
	Second(s runlog.Second)
	Step(s runlog.Step)
	Alerts() []runlog.Alert
	Changes() uint64
	Check(atS, settleS float64, uses []forecast.Use, l forecast.Limits) forecast.Decision
}

// Config is what a monitor reads and how often. GPU, Watcher and Forecast may be nil.
type Config struct {
	// one that is a GPUWatcher, too, is also asked once a second what its GPUs do
	GPU      GPUReader
	Host     HostReader
	Watcher  HostWatcher
	Forecast Forecaster
	Interval time.Duration // 1 ms to 1 min; 100 ms costs little
}

// Monitor samples until it is stopped. Its methods may be called from any goroutine.
type Monitor struct {
	gpu        GPUReader
	gpuCount   int // that are watched
	host       hostSource
	watcher    HostWatcher
	forecast   Forecaster
	clock      clock
	interval   time.Duration
	properties properties

	lock  sync.Mutex // guards stats; held for the length of a copy
	stats Stats

	// tables have locks of their own, so that a plot never delays a training step
	history    *table[float64]
	seconds    *table[float32] // the slow series
	steps      *stepTable
	events     eventLog
	clockWatch clockWatch
	activity   *activity
	readings   int // of the slow loop, which alone counts them

	running  atomic.Int32 // goroutines that may use gpu; the last one closes it
	sleeper  *sleeper
	stopOnce sync.Once
	stop     chan struct{} // closed to ask the samplers to end
	done     chan struct{} // closed when all have ended
}

// Start takes a first sample and then one every interval. GPU may be nil: then only the host is
// watched, whose memory is read twice a second at most. A reading that fails is counted and tried
// again; it is never an error here.
//
// From a successful Start on, the monitor owns GPU and closes it when it ends. On an error it stays
// the caller's. Errors: InvalidArgument for the interval, Poisoned when a reader panics.
func Start(c Config) (*Monitor, error) {
	if c.Interval < MinInterval || c.Interval > MaxInterval {
		return nil, fault.New(fault.InvalidArgument, "100 ms is usual",
			"the sampling interval is %v, outside %v..%v", c.Interval, MinInterval, MaxInterval)
	}
	return start(c, systemClock{time.Now()}, max(1, int(hostInterval/c.Interval)))
}

func start(c Config, clock clock, hostEvery int) (*Monitor, error) {
	m, err := prepare(c, clock, hostEvery)
	if err != nil {
		return nil, err
	}
	slow := max(slowInterval, c.Interval)
	loops := []func(){func() {
		m.loop(c.Interval, m.sample)
	}, func() { m.atOnce(slow, func() { m.second(); m.saveMemory() }) }}
	if watcher, is := c.GPU.(GPUWatcher); is {
		loops = append(loops, func() { m.atOnce(slow, func() { m.sampleGPUs(watcher) }) })
	}
	m.sleeper = newSleeper()
	m.running.Store(int32(len(loops)))
	for _, run := range loops {
		go func() {
			defer m.leave()
			run()
		}()
	}
	return m, nil
}

// prepare takes the first sample.
func prepare(c Config, clock clock, hostEvery int) (*Monitor, error) {
	m := &Monitor{
		gpu: c.GPU, host: hostSource{read: c.Host, every: hostEvery}, watcher: c.Watcher,
		forecast: c.Forecast,
		clock:    clock, interval: c.Interval, stop: make(chan struct{}), done: make(chan struct{}),
	}
	return m, guarded(func() {
		if m.gpu != nil {
			m.gpuCount = min(max(m.gpu.Count(), 0), MaxGPUs)
		}
		m.stats.GPUCount = m.gpuCount
		m.history, m.seconds, m.steps = newHistory(m.gpuCount),
			newTable[float32](maxRows, mergings(m.gpuCount)), newStepTable()
		m.activity = newActivity(m.gpuCount)
		m.clockWatch = newClockWatch(clock)
		m.sample()
		m.properties = m.readProperties()
	})
}

// atOnce is loop with a first run before the first interval has passed.
func (m *Monitor) atOnce(interval time.Duration, f func()) {
	if m.runs(f) {
		m.loop(interval, f)
	}
}

// loop runs f at every interval until Stop or a panic; runs that were missed are left out.
func (m *Monitor) loop(interval time.Duration, f func()) {
	for began := time.Now(); ; {
		m.sleeper.sleep(interval-time.Since(began)%interval, m.stop)
		if m.stopped() || !m.runs(f) {
			return
		}
	}
}

// leave ends one goroutine. The last one closes the reader: so never during a reading.
func (m *Monitor) leave() {
	if m.running.Add(-1) == 0 {
		if m.gpu != nil {
			m.runs(m.gpu.Close)
		}
		m.sleeper.close()
		close(m.done)
	}
}

func (m *Monitor) stopped() bool {
	select {
	case <-m.stop:
		return true
	default:
		return false
	}
}

// guarded runs f and turns a panic into an error: a panic in a goroutine would end the whole
// process.
func guarded(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Poison("the memory sampler", p)
		}
	}()
	f()
	return nil
}

// runs reports whether f ended without a panic, which is counted as an error.
func (m *Monitor) runs(f func()) bool {
	if guarded(f) == nil {
		return true
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.stats.Errors++
	return false
}

// Stop ends the samplers and closes the reader. It waits at most a second, in case a driver call
// hangs; the reader is then closed whenever that call returns. Further calls do no harm. Everything
// that was seen can still be asked for.
func (m *Monitor) Stop() {
	m.stopOnce.Do(func() {
		close(m.stop)
		m.sleeper.wake()
	})
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	select {
	case <-m.done:
	case <-patience.C:
	}
}

// Stats and GPUStats cross the C boundary as they are: `make generate` after a change, and raise
// ABI_VERSION in core/api/abi.go.

// Stats is the newest sample. Sizes are bytes.
type Stats struct {
	Samples   uint64 // taken since the start, at least 1
	Errors    uint64 // failed readings since the start, of a GPU or of the host
	UnixNanos int64  // wall clock of the newest sample
	// 0 as long as the host has never answered; after a failed reading the host fields keep the
	// last values
	HostTotal uint64
	HostUsed  uint64 // total less available
	HostPeak  uint64 // highest HostUsed since the start
	GPUCount  int    // entries of GPU in use
	// alerts raised and cleared so far: asking for them is worth it when this changes
	Alerts uint64
	GPU    [MaxGPUs]GPUStats
}

// GPUStats is one GPU's memory in bytes. While the driver does not answer, Valid is false and the
// rest keeps the last values.
type GPUStats struct {
	Total, Used, Free uint64
	Peak              uint64 // highest Used since the start
	Valid             bool
	// PyTorch's counters of this process at the last step; 0 before the first
	Allocated, Reserved uint64
	Headroom            uint64 // what training can still allocate; Free before the first step
	TorchValid          bool   // a step has reported PyTorch's counters
	FreeAtStep          uint64 // Free when PyTorch's counters were read
}

// Read copies the newest sample. It allocates nothing and takes well under a microsecond.
func (m *Monitor) Read(out *Stats) {
	m.lock.Lock()
	*out = m.stats
	m.lock.Unlock()
	if m.forecast != nil {
		out.Alerts = m.forecast.Changes()
	}
}

// headroom returns the bytes that training can still allocate: what the driver has free and what
// PyTorch's cache holds unused. The cache is known as of the last step, what is free as of the
// newest sample, and emptying the cache in between makes memory free that the counters still show
// as cache. So memory that became free since the step is taken for memory of the cache. Until the
// next step the headroom may be too small by what another process freed, but never too large.
func (g *GPUStats) headroom() uint64 {
	unused := g.Reserved - min(g.Allocated, g.Reserved)
	freed := g.Free - min(g.FreeAtStep, g.Free)
	return min(g.Free+unused-min(freed, unused), g.Total)
}

// learn takes PyTorch's counters at a step.
func (g *GPUStats) learn(allocated, reserved uint64) {
	g.Allocated, g.Reserved, g.FreeAtStep, g.TorchValid = allocated, reserved, g.Free, true
	g.Headroom = g.headroom()
}

// refresh takes a new sample and keeps what is not part of one.
func (g *GPUStats) refresh(used, total, free uint64) {
	g.Used, g.Total, g.Free, g.Valid = used, total, free, true
	g.Peak = max(g.Peak, used)
	g.Headroom = g.headroom()
}
