package monitor

import (
	"errors"
	"math"

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
		m.events.once(runlog.Event{AtS: m.now(), Kind: runlog.EventUnread, GPU: -1,
			Text: r.hostErr.Error()})
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
		s.HostTotal, s.HostUsed, s.HostPeak =
			r.host.TotalBytes, r.hostUsed, max(s.HostPeak, r.hostUsed)
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

// maxPoints is the fixed length of the history. When it is full, neighbours are merged: a run of
// any length fits, a short one at full resolution, and no peak is ever lost. 8192 points of 100 ms
// are 13 minutes; a day's run has points of 13 s.
const maxPoints = 8192

// absent stands in a series for a value that could not be read; no memory is that large.
const absent = math.MaxUint64

// memoryTable is a table of fixed size: one row per point, a column for the host and one for each
// GPU.
type memoryTable struct {
	times    []float64
	columns  [][]uint64
	perPoint int     // samples that a full point covers: 1, 2, 4, …
	inLast   int     // samples that the last point covers so far
	newest   float64 // time of the newest sample
}

func newMemoryTable(gpus int) memoryTable {
	s := memoryTable{times: make([]float64, 0, maxPoints), columns: make([][]uint64, 1+gpus),
		perPoint: 1}
	for i := range s.columns {
		s.columns[i] = make([]uint64, 0, maxPoints)
	}
	return s
}

func (s *memoryTable) gpus() int { return len(s.columns) - 1 }

// add takes one sample, without allocating.
func (s *memoryTable) add(atS float64, host uint64, gpus []uint64) {
	if s.inLast == s.perPoint && len(s.times) == maxPoints {
		s.halve()
	}
	if s.inLast == s.perPoint || len(s.times) == 0 {
		s.times = append(s.times, atS)
		for i := range s.columns {
			s.columns[i] = append(s.columns[i], absent)
		}
		s.inLast = 0
	}
	s.inLast++
	s.newest = atS
	last := len(s.times) - 1
	s.columns[0][last] = higher(s.columns[0][last], host)
	for i, used := range gpus {
		s.columns[1+i][last] = higher(s.columns[1+i][last], used)
	}
}

// halve merges every two neighbours of a full table.
func (s *memoryTable) halve() {
	for i := range maxPoints / 2 {
		s.times[i] = s.times[2*i]
	}
	s.times = s.times[:maxPoints/2]
	for i, column := range s.columns {
		s.columns[i] = merged(column[:0], column, 2)
	}
	s.perPoint *= 2
	s.inLast = s.perPoint
}

// merged appends to out the highest value of every group of neighbours. out may be the front of
// column itself.
func merged(out, column []uint64, group int) []uint64 {
	for start := 0; start < len(column); start += group {
		highest := column[start]
		for _, value := range column[start:min(start+group, len(column))] {
			highest = higher(highest, value)
		}
		out = append(out, highest)
	}
	return out
}

// higher is the larger of two values, where an absent one counts as none.
func higher(a, b uint64) uint64 {
	switch {
	case a == absent:
		return b
	case b == absent:
		return a
	}
	return max(a, b)
}

// History is what a monitor has seen: one entry per point, and the highest value of the samples
// that it covers. Sizes are bytes; null where nothing could be read.
type History struct {
	StartUnixNanos int64 `json:"start_unix_nanos"` // wall clock of time 0
	// seconds from the start to a point's first sample, rising
	TimesS []float64 `json:"times_s"`
	// samples that a point covers; the last one may cover fewer
	SamplesAPoint  int          `json:"samples_a_point"`
	HostTotalBytes uint64       `json:"host_total_bytes"` // 0 when the host never answered
	HostUsedBytes  []*uint64    `json:"host_used_bytes"`
	GPUs           []GPUHistory `json:"gpus"`
}

// GPUHistory is the memory of one GPU over time.
type GPUHistory struct {
	TotalBytes uint64    `json:"total_bytes"` // 0 when it never answered
	UsedBytes  []*uint64 `json:"used_bytes"`
}

// History copies what was seen so far, in at most limit points; 0 or less means all that are kept
// (at most 8192).
func (m *Monitor) History(limit int) History {
	var stats Stats
	m.Read(&stats)
	times, columns, samples := m.copyHistory(limit)
	h := History{
		StartUnixNanos: m.properties.began.UnixNano(), TimesS: times, SamplesAPoint: samples,
		HostTotalBytes: stats.HostTotal, HostUsedBytes: pointers(columns[0]), GPUs: []GPUHistory{},
	}
	for i, column := range columns[1:] {
		h.GPUs = append(h.GPUs, GPUHistory{TotalBytes: stats.GPU[i].Total,
			UsedBytes: pointers(column)})
	}
	return h
}

func (m *Monitor) copyHistory(limit int) (times []float64, columns [][]uint64, samples int) {
	m.historyLock.Lock()
	defer m.historyLock.Unlock()
	group := 1
	if points := len(m.history.times); limit > 0 && points > limit {
		group = (points + limit - 1) / limit
	}
	for start := 0; start < len(m.history.times); start += group {
		times = append(times, m.history.times[start])
	}
	for _, column := range m.history.columns {
		columns = append(columns, merged(nil, column, group))
	}
	return times, columns, group * m.history.perPoint
}

func pointers(column []uint64) []*uint64 {
	out := make([]*uint64, len(column))
	for i, value := range column {
		if value != absent {
			out[i] = &column[i]
		}
	}
	return out
}
