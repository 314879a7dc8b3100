package monitor

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const patience, tick = 5 * time.Second, time.Millisecond

// fakeGPUs is a GPUReader whose answers the test sets.
type fakeGPUs struct {
	lock    sync.Mutex
	used    []uint64
	failing map[int]error
	panics  bool
	closed  int
	hang    func() // when set, called by Memory
}

func (f *fakeGPUs) Count() int { return len(f.used) }

func (f *fakeGPUs) Memory(i int) (used, total, free uint64, err error) {
	f.lock.Lock()
	hang := f.hang
	f.lock.Unlock()
	if hang != nil {
		hang()
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.panics {
		panic("driver gone")
	}
	return f.used[i], 1000, 1000 - f.used[i], f.failing[i]
}

func (f *fakeGPUs) Close() { f.set(func() { f.closed++ }) }

func (f *fakeGPUs) set(edit func()) {
	f.lock.Lock()
	defer f.lock.Unlock()
	edit()
}

func (f *fakeGPUs) closings() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.closed
}

func steadyHost() (profile.Memory, error) {
	return profile.Memory{TotalBytes: 64, AvailableBytes: 40}, nil
}

func started(t *testing.T, gpu GPUReader, host HostReader) *Monitor {
	t.Helper()
	m, err := start(Config{GPU: gpu, Host: host, Interval: MinInterval}, systemClock{time.Now()}, 1)
	require.NoError(t, err)
	t.Cleanup(m.Stop)
	return m
}

func statsOf(m *Monitor) Stats {
	var s Stats
	m.Read(&s)
	return s
}

func eventually(t *testing.T, m *Monitor, condition func(s Stats) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return condition(statsOf(m)) }, patience, tick)
}

func TestTheFirstSampleIsThereAtOnce(t *testing.T) {
	before := time.Now().UnixNano()
	m, err := Start(Config{GPU: &fakeGPUs{used: []uint64{300, 500}}, Host: steadyHost, Interval: MaxInterval})
	require.NoError(t, err)
	defer m.Stop()
	s := statsOf(m)
	assert.Equal(t, uint64(1), s.Samples)
	assert.Zero(t, s.Errors)
	assert.GreaterOrEqual(t, s.UnixNanos, before)
	assert.Equal(t, []uint64{64, 24, 24}, []uint64{s.HostTotal, s.HostUsed, s.HostPeak})
	assert.Equal(t, 2, s.GPUCount)
	assert.Equal(t, GPUStats{Total: 1000, Used: 500, Free: 500, Peak: 500, Headroom: 500, Valid: true}, s.GPU[1])
	assert.Equal(t, GPUStats{}, s.GPU[2])
}

func TestPeaksRise(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{100}}
	var available atomic.Uint64
	available.Store(10)
	m := started(t, gpu, func() (profile.Memory, error) {
		return profile.Memory{TotalBytes: 64, AvailableBytes: available.Load()}, nil
	})
	gpu.set(func() { gpu.used[0] = 900 })
	eventually(t, m, func(s Stats) bool { return s.GPU[0].Used == 900 })
	gpu.set(func() { gpu.used[0] = 200 })
	available.Store(60)
	eventually(t, m, func(s Stats) bool { return s.GPU[0].Used == 200 && s.HostUsed == 4 })
	s := statsOf(m)
	assert.Equal(t, []uint64{900, 54}, []uint64{s.GPU[0].Peak, s.HostPeak})
}

func TestAFailingGPUIsInvalidUntilItAnswersAgain(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{100, 200}, failing: map[int]error{}}
	m := started(t, gpu, steadyHost)
	gpu.set(func() { gpu.failing[1] = errors.New("GPU is lost") })
	eventually(t, m, func(s Stats) bool { return !s.GPU[1].Valid && s.Errors > 0 })
	s := statsOf(m)
	assert.True(t, s.GPU[0].Valid)
	assert.Equal(t, GPUStats{Total: 1000, Used: 200, Free: 800, Peak: 200, Headroom: 800}, s.GPU[1])
	gpu.set(func() { gpu.failing[1] = nil })
	eventually(t, m, func(s Stats) bool { return s.GPU[1].Valid })
}

func TestAFailingHostIsCounted(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	m := started(t, nil, func() (profile.Memory, error) {
		if failing.Load() {
			return profile.Memory{}, errors.New("no /proc")
		}
		return steadyHost()
	})
	s := statsOf(m)
	assert.GreaterOrEqual(t, s.Errors, uint64(1))
	assert.Zero(t, s.HostTotal)
	assert.True(t, math.IsNaN(m.History(1).HostUsedBytes[0]))
	failing.Store(false)
	eventually(t, m, func(s Stats) bool { return s.HostUsed == 24 })
}

func TestTheHostIsReadLessOftenThanTheGPUs(t *testing.T) {
	var readings atomic.Uint64
	m, err := Start(Config{Interval: 100 * time.Millisecond, Host: func() (profile.Memory, error) {
		if readings.Add(1) > 1 {
			return profile.Memory{}, errors.New("no /proc")
		}
		return steadyHost()
	}})
	require.NoError(t, err)
	m.Stop() // from here on the test samples by itself
	for range 20 {
		m.sample()
	}
	s := statsOf(m)
	assert.Equal(t, (s.Samples+4)/5, readings.Load())
	assert.Equal(t, readings.Load()-1, s.Errors, "a repeated answer is not another error")
	assert.Equal(t, 24.0, m.History(0).HostUsedBytes[4], "between readings the last answer stands")
	assert.True(t, math.IsNaN(m.History(0).HostUsedBytes[5]))
}

func TestAvailableAboveTotalIsNoUse(t *testing.T) {
	m := started(t, nil, func() (profile.Memory, error) { return profile.Memory{TotalBytes: 5, AvailableBytes: 9}, nil })
	assert.Zero(t, statsOf(m).HostUsed)
}

func TestNoMoreThanMaxGPUs(t *testing.T) {
	m := started(t, &fakeGPUs{used: make([]uint64, 40)}, steadyHost)
	assert.Equal(t, MaxGPUs, statsOf(m).GPUCount)
	assert.Len(t, m.History(0).GPUs, MaxGPUs)
}

func TestStartRefusesBadArguments(t *testing.T) {
	for _, s := range []struct {
		interval time.Duration
		text     string
	}{
		{0, "0s, outside 1ms..1m0s"},
		{-time.Second, "-1s"},
		{MinInterval - 1, "999.999µs"},
		{MaxInterval + 1, "outside"},
	} {
		gpu := &fakeGPUs{used: []uint64{1}}
		_, err := Start(Config{GPU: gpu, Host: steadyHost, Interval: s.interval})
		var f *fault.Error
		require.ErrorAs(t, err, &f)
		assert.Equal(t, fault.InvalidArgument, f.Code)
		assert.Contains(t, f.Message, s.text)
		assert.Zero(t, gpu.closings(), "after an error the reader is the caller's")
	}
}

func TestAPanicInTheFirstSampleIsAnError(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{1}, panics: true}
	_, err := Start(Config{GPU: gpu, Host: steadyHost, Interval: time.Second})
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	assert.Equal(t, fault.Poisoned, f.Code)
	assert.Contains(t, f.Message, "driver gone")
}

func TestALaterPanicEndsTheSamplerOnly(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{1}}
	m := started(t, gpu, steadyHost)
	assert.Zero(t, statsOf(m).Errors)
	gpu.set(func() { gpu.panics = true })
	eventually(t, m, func(s Stats) bool { return s.Errors > 0 })
	assert.ErrorContains(t, fault.PoisonError(), "driver gone")
	m.Stop()
	s := statsOf(m)
	assert.Equal(t, uint64(1), s.Errors)
	assert.Equal(t, uint64(1), s.GPU[0].Used, "the last sample stays readable")
	assert.Equal(t, 1, gpu.closings())
}

func TestStopIsIdempotentAndClosesOnce(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{1}}
	m := started(t, gpu, steadyHost)
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() { defer group.Done(); m.Stop() }()
	}
	group.Wait()
	assert.Equal(t, 1, gpu.closings())
	assert.Zero(t, statsOf(m).Errors)
	samples := statsOf(m).Samples
	time.Sleep(5 * MinInterval)
	assert.Equal(t, samples, statsOf(m).Samples)
}

func TestStopDoesNotWaitForAHangingDriver(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{1}}
	m := started(t, gpu, steadyHost)
	hanging, release := make(chan struct{}), make(chan struct{})
	gpu.set(func() { gpu.hang = func() { hanging <- struct{}{}; <-release } })
	<-hanging
	m.Stop()
	assert.Zero(t, gpu.closings(), "a reader in use is not closed")
	close(release)
	require.Eventually(t, func() bool { return gpu.closings() == 1 }, patience, tick)
}

func TestReadDoesNotAllocate(t *testing.T) {
	m, err := Start(Config{GPU: &fakeGPUs{used: make([]uint64, MaxGPUs)}, Host: steadyHost, Interval: MaxInterval})
	require.NoError(t, err)
	defer m.Stop()
	var s Stats
	assert.Zero(t, testing.AllocsPerRun(1000, func() { m.Read(&s) }))
	assert.Zero(t, testing.AllocsPerRun(1000, m.sample), "nor does the sampler itself")
}

func TestReadersAndSamplerTogether(t *testing.T) {
	gpu := &fakeGPUs{used: []uint64{7, 7}}
	m := started(t, gpu, steadyHost)
	var group sync.WaitGroup
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			var s Stats
			for s.Samples < 20 && s.Errors == 0 {
				m.Read(&s)
				assert.Equal(t, s.GPU[0].Used+s.GPU[0].Free, s.GPU[0].Total)
				assert.NotEmpty(t, m.History(3).TimesS)
			}
		}()
	}
	group.Wait()
}
