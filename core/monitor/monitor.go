// Package monitor watches GPU and host memory from a goroutine of its own, so that training pays one short read a step.
package monitor

import (
	"sync"
	"time"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Limits of a monitor.
const (
	MaxGPUs     = 16 // further GPUs are not watched
	MinInterval = time.Millisecond
	MaxInterval = time.Minute

	// hostInterval is the least time between two readings of the host. Each opens a dozen files of /proc and of the
	// container's limits, some 0.5 ms of processor time against microseconds for a GPU: at every sample of 100 ms the
	// sampler took 0.8 % of a core, so it takes 0.4 %.
	hostInterval = 500 * time.Millisecond
	stopPatience = time.Second
)

// GPUReader reads the memory of GPUs, in bytes. *hardware.Devices is one. Only the sampler calls it, one call at a time.
type GPUReader interface {
	Count() int
	Memory(i int) (used, total, free uint64, err error)
	Close() error
}

// HostReader reads host memory, container limits applied.
type HostReader func() (profile.Memory, error)

// Stats is the newest sample. Sizes are bytes.
type Stats struct {
	Samples   uint64 // taken since the start, at least 1
	Errors    uint64 // failed readings since the start, of a GPU or of the host
	UnixNanos int64  // wall clock of the newest sample
	HostTotal uint64 // 0 as long as the host has never answered; after a failed reading the host fields keep the last values
	HostUsed  uint64 // total less available
	HostPeak  uint64 // highest HostUsed since the start or the last reset
	GPUCount  int    // entries of GPU in use
	GPU       [MaxGPUs]GPUStats
}

// GPUStats is one GPU's memory in bytes. While the driver does not answer, Valid is false and the rest keeps the last values.
type GPUStats struct {
	Total, Used, Free uint64
	Peak              uint64 // highest Used since the start or the last reset
	Valid             bool
}

// Monitor samples until it is stopped. Its methods may be called from any goroutine.
type Monitor struct {
	gpu   GPUReader
	host  hostSource
	start time.Time // with its monotonic reading: jumps of the wall clock do not matter

	lock  sync.Mutex // guards stats and err; held for the length of a copy
	stats Stats
	err   error

	historyLock sync.Mutex // apart from lock, so that a plot never delays a training step
	history     series

	stopOnce sync.Once
	stop     chan struct{} // closed to ask the sampler to end
	done     chan struct{} // closed when it has ended
}

// Start takes a first sample and then one every interval (1 ms to 1 min; 100 ms costs little). gpu may be nil: then only
// host memory is watched, which is read twice a second at most. A reading that fails is counted and tried again; it is
// never an error here.
//
// From a successful Start on, the monitor owns gpu and closes it when it ends. On an error gpu stays the caller's.
// Errors: InvalidArgument for the interval or a missing host reader, Poisoned when a reader panics.
func Start(gpu GPUReader, host HostReader, interval time.Duration) (*Monitor, error) {
	if interval < MinInterval || interval > MaxInterval {
		return nil, fault.New(fault.InvalidArgument, "100 ms is usual", "the sampling interval is %v, outside %v..%v", interval, MinInterval, MaxInterval)
	}
	if host == nil {
		return nil, fault.New(fault.InvalidArgument, "pass a reader of host memory", "there is no reader of host memory")
	}
	return start(gpu, hostSource{read: host, every: max(1, int(hostInterval/interval))}, interval)
}

func start(gpu GPUReader, host hostSource, interval time.Duration) (*Monitor, error) {
	m := &Monitor{gpu: gpu, host: host, start: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	if err := guarded(func() { m.countGPUs(); m.sample() }); err != nil {
		return nil, err
	}
	go m.run(interval)
	return m, nil
}

func (m *Monitor) countGPUs() {
	if m.gpu != nil {
		m.stats.GPUCount = min(max(m.gpu.Count(), 0), MaxGPUs)
	}
	m.history = newSeries(m.stats.GPUCount)
}

// run samples until Stop or a panic, and then closes the reader: only here, so never during a reading.
func (m *Monitor) run(interval time.Duration) {
	defer close(m.done)
	defer m.closeReader()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !m.stopped() { // asked again after a tick, because select picks any case that is ready
		select {
		case <-m.stop:
		case <-ticker.C:
			if err := guarded(m.sample); err != nil {
				m.fail(err)
				return
			}
		}
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

func (m *Monitor) closeReader() {
	if m.gpu == nil {
		return
	}
	var closing error
	if err := guarded(func() { closing = m.gpu.Close() }); err != nil {
		closing = err
	}
	if closing != nil {
		m.fail(fault.Wrap(closing, fault.Internal, "the driver may need a new process", "cannot close the GPU reader"))
	}
}

// guarded runs f and turns a panic into an error: a panic in a goroutine would end the whole process.
func guarded(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Poison("the memory sampler", p)
		}
	}()
	f()
	return nil
}

// fail counts an error that ended the sampler; the first one is kept.
func (m *Monitor) fail(err error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.stats.Errors++
	if m.err == nil {
		m.err = err
	}
}

// Read copies the newest sample. It allocates nothing and takes well under a microsecond.
func (m *Monitor) Read(out *Stats) {
	m.lock.Lock()
	*out = m.stats
	m.lock.Unlock()
}

// ResetPeaks makes the newest values the peaks.
func (m *Monitor) ResetPeaks() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.stats.HostPeak = m.stats.HostUsed
	for i := range m.stats.GPUCount {
		m.stats.GPU[i].Peak = m.stats.GPU[i].Used
	}
}

// Err tells why the sampler ended by itself; nil while it runs and after an ordinary Stop.
func (m *Monitor) Err() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.err
}

// Stop ends the sampler and closes the reader. It waits at most a second, in case a driver call hangs; the reader is then
// closed whenever that call returns. Further calls do no harm. Read and History keep answering with what was seen.
func (m *Monitor) Stop() {
	m.stopOnce.Do(func() { close(m.stop) })
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	select {
	case <-m.done:
	case <-patience.C:
	}
}
