package monitor

import (
	"errors"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// hostSource reads the host at every n-th sample; the samples between repeat its answer. Only the
// sampler touches it.
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

// reading is one sample before it is published.
type reading struct {
	errors  uint64
	host    profile.Memory
	hostErr error
	gpu     [MaxGPUs]gpuReading
	used    [1 + MaxGPUs]float64 // of the host and each GPU; NaN where it could not be read
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
	m.history.add(m.clockWatch.since.Seconds(), r.used[:1+m.gpuCount])
}

func (m *Monitor) read() (r reading) {
	fresh := m.host.next()
	r.host, r.hostErr, r.used[0] = m.host.last, m.host.err, math.NaN()
	if r.hostErr == nil {
		r.used[0] = float64(usedOf(&r.host))
	} else if fresh {
		r.errors++
		m.record(runlog.EventUnread, -1, r.hostErr.Error())
	}
	for i := range m.gpuCount {
		g := &r.gpu[i]
		g.used, g.total, g.free, g.err = m.gpu.Memory(i)
		if r.used[1+i] = float64(g.used); g.err != nil {
			r.errors++
			r.used[1+i] = math.NaN()
		}
	}
	return r
}

func usedOf(host *profile.Memory) uint64 {
	return host.TotalBytes - min(host.AvailableBytes, host.TotalBytes)
}

func (m *Monitor) publish(r *reading) {
	m.lock.Lock()
	defer m.lock.Unlock()
	s := &m.stats
	s.Samples++
	s.Errors += r.errors
	s.UnixNanos = m.clock.Wall().UnixNano()
	if r.hostErr == nil {
		s.HostTotal, s.HostUsed = r.host.TotalBytes, usedOf(&r.host)
		s.HostPeak = max(s.HostPeak, s.HostUsed)
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
	if gpu < 0 || gpu >= m.gpuCount {
		gpu = -1
	}
	m.record(kind, gpu, text)
}

// maxPoints is the length of the history, of which no peak is ever lost. 8192 points of 100 ms are
// 13 minutes; a day's run has points of 13 s.
const maxPoints = 8192

// newHistory is a table of the memory used: a column for the host and one for each GPU.
func newHistory(gpus int) *table[float64] {
	return newTable[float64](maxPoints, slices.Repeat([]merging{highest}, 1+gpus))
}

// History is what a monitor has seen: one entry per point, and the highest value of the samples
// that it covers. Sizes are bytes; null where nothing could be read.
type History struct {
	StartUnixNanos int64 `json:"start_unix_nanos"` // wall clock of time 0
	// seconds from the start to a point's first sample, rising
	TimesS []float64 `json:"times_s"`
	// samples that a point covers; the last one may cover fewer
	SamplesAPoint  int           `json:"samples_a_point"`
	HostTotalBytes uint64        `json:"host_total_bytes"` // 0 when the host never answered
	HostUsedBytes  runlog.Column `json:"host_used_bytes"`
	GPUs           []GPUHistory  `json:"gpus"`
}

// GPUHistory is the memory of one GPU over time.
type GPUHistory struct {
	TotalBytes uint64        `json:"total_bytes"` // 0 when it never answered
	UsedBytes  runlog.Column `json:"used_bytes"`
}

// History copies what was seen so far, in at most limit points; 0 or less means all that are kept
// (at most 8192).
func (m *Monitor) History(limit int) History {
	var stats Stats
	m.Read(&stats)
	times, columns, samples := m.history.copy(limit)
	h := History{
		StartUnixNanos: m.properties.began.UnixNano(), TimesS: times, SamplesAPoint: samples,
		HostTotalBytes: stats.HostTotal, HostUsedBytes: columns[0], GPUs: []GPUHistory{},
	}
	for i, column := range columns[1:] {
		h.GPUs = append(h.GPUs, GPUHistory{stats.GPU[i].Total, column})
	}
	return h
}
