package monitor

import (
	"time"

	"github.com/asrconfig/asrconfig-go/core/profile"
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
	hostOK   bool
	host     profile.Memory
	hostUsed uint64
	gpu      [MaxGPUs]GPUStats // Peak unused
	used     [MaxGPUs]uint64
}

// sample reads everything without holding a lock, then publishes it.
func (m *Monitor) sample() {
	r := m.read()
	at := time.Since(m.start)
	m.publish(&r)
	m.historyLock.Lock()
	defer m.historyLock.Unlock()
	m.history.add(at.Seconds(), r.hostUsed, r.used[:m.history.gpus()])
}

func (m *Monitor) read() (r reading) {
	fresh := m.host.next()
	r.host, r.hostOK, r.hostUsed = m.host.last, m.host.err == nil, absent
	if r.hostOK {
		r.hostUsed = r.host.TotalBytes - min(r.host.AvailableBytes, r.host.TotalBytes)
	} else if fresh {
		r.errors++
	}
	for i := range m.history.gpus() {
		var err error
		g := &r.gpu[i]
		if g.Used, g.Total, g.Free, err = m.gpu.Memory(i); err != nil {
			r.errors++
			r.used[i] = absent
			continue
		}
		g.Valid, r.used[i] = true, g.Used
	}
	return r
}

func (m *Monitor) publish(r *reading) {
	m.lock.Lock()
	defer m.lock.Unlock()
	s := &m.stats
	s.Samples++
	s.Errors += r.errors
	s.UnixNanos = time.Now().UnixNano()
	if r.hostOK {
		s.HostTotal, s.HostUsed, s.HostPeak = r.host.TotalBytes, r.hostUsed, max(s.HostPeak, r.hostUsed)
	}
	for i := range s.GPUCount {
		old := &s.GPU[i]
		if !r.gpu[i].Valid {
			old.Valid = false
			continue
		}
		peak := max(old.Peak, r.gpu[i].Used)
		*old = r.gpu[i]
		old.Peak = peak
	}
}
