package monitor

import (
	"errors"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// hostSource reads the host at every n-th sample; the samples between repeat its answer. Only the sampler touches it.
type hostSource struct {
	read  HostReader
	every int // samples from one reading to the next, at least 1
	wait  int // samples until the next reading
	last  profile.Memory
	err   error // of the last reading
}

// next brings last and err up to this sample and tells whether they were read just now.
func (h *hostSource) next() (fresh bool) {
	if fresh = h.wait == 0; fresh {
		h.last, h.err = h.read()
		h.wait = h.every
	}
	h.wait--
	return fresh
}

// reading is one sample before it is published; absent marks what could not be read.
type reading struct {
	errors   uint64
	host     profile.Memory
	hostErr  error
	hostUsed uint64
	gpu      [MaxGPUs]gpuReading
	used     [MaxGPUs]uint64
}

type gpuReading struct {
	used, total, free uint64
	err               error
}

// sample reads everything without holding a lock, then publishes it.
func (m *Monitor) sample() {
	r := m.read()
	m.clockWatch.check(m.interval, func(kind, text string) { m.record(kind, -1, text) })
	m.publish(&r)
	m.historyLock.Lock()
	defer m.historyLock.Unlock()
	m.history.add(m.clockWatch.since.Seconds(), r.hostUsed, r.used[:m.history.gpus()])
}

func (m *Monitor) read() (r reading) {
	fresh := m.host.next()
	r.host, r.hostErr, r.hostUsed = m.host.last, m.host.err, absent
	if r.hostErr == nil {
		r.hostUsed = r.host.TotalBytes - min(r.host.AvailableBytes, r.host.TotalBytes)
	} else if fresh {
		r.errors++
		m.events.once(runlog.Event{AtS: m.now(), Kind: runlog.EventUnread, GPU: -1, Text: r.hostErr.Error()})
	}
	for i := range m.history.gpus() {
		g := &r.gpu[i]
		if g.used, g.total, g.free, g.err = m.gpu.Memory(i); g.err != nil {
			r.errors++
			r.used[i] = absent
			continue
		}
		r.used[i] = g.used
	}
	return r
}

func (m *Monitor) publish(r *reading) {
	m.lock.Lock()
	defer m.lock.Unlock()
	s := &m.stats
	s.Samples++
	s.Errors += r.errors
	s.UnixNanos = m.clock.Wall().UnixNano()
	if r.hostErr == nil {
		s.HostTotal, s.HostUsed, s.HostPeak = r.host.TotalBytes, r.hostUsed, max(s.HostPeak, r.hostUsed)
	}
	for i := range s.GPUCount {
		g, old := &r.gpu[i], &s.GPU[i]
		m.recordChange(i, old, s.Samples == 1, g.err)
		if g.err != nil {
			old.Valid = false
			continue
		}
		old.refresh(g.used, g.total, g.free)
	}
}

// recordChange writes down that a GPU stopped answering, or answers again.
func (m *Monitor) recordChange(i int, old *GPUStats, first bool, err error) {
	switch {
	case err == nil && !old.Valid && !first:
		m.record(runlog.EventBack, i, "the GPU answers again")
	case err != nil && (old.Valid || first):
		kind := runlog.EventLost
		if f := new(fault.Error); errors.As(err, &f) && f.Code == fault.Corrupt {
			kind = runlog.EventNonsense
		}
		m.record(kind, i, err.Error())
	}
}

// now is the time in seconds from the start.
func (m *Monitor) now() float64 { return m.clock.Since().Seconds() }

func (m *Monitor) record(kind string, gpu int, text string) {
	m.events.add(runlog.Event{AtS: m.now(), Kind: kind, GPU: gpu, Text: text})
}

// Record writes an event down, as the training tells of it. A GPU outside the range is none.
func (m *Monitor) Record(kind string, gpu int, text string) {
	if gpu < 0 || gpu >= m.history.gpus() {
		gpu = -1
	}
	m.record(kind, gpu, text)
}
