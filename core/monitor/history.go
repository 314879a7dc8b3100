package monitor

import "math"

// maxPoints is the fixed length of the history. When it is full, neighbours are merged: a run of any length fits, a short
// one at full resolution, and no peak is ever lost. 8192 points of 100 ms are 13 minutes; a day's run has points of 13 s.
const maxPoints = 8192

// absent stands in a series for a value that could not be read; no memory is that large.
const absent = math.MaxUint64

// History is what a monitor has seen, for plots. Every list has one entry per point; a point holds the highest value of the
// samples it covers. Sizes are bytes; null where nothing could be read.
type History struct {
	StartUnixNanos int64        `json:"start_unix_nanos"` // wall clock of time 0
	TimesS         []float64    `json:"times_s"`          // seconds from the start to a point's first sample, rising
	SamplesAPoint  int          `json:"samples_a_point"`  // samples that a point covers; the last one may cover fewer
	HostTotalBytes uint64       `json:"host_total_bytes"` // 0 when the host never answered
	HostUsedBytes  []*uint64    `json:"host_used_bytes"`
	GPUs           []GPUHistory `json:"gpus"`
}

// GPUHistory is the memory of one GPU over time.
type GPUHistory struct {
	TotalBytes uint64    `json:"total_bytes"` // 0 when it never answered
	UsedBytes  []*uint64 `json:"used_bytes"`
}

// History copies what was seen so far, in at most limit points; 0 or less means all that are kept (at most 8192).
func (m *Monitor) History(limit int) History {
	var now Stats
	m.Read(&now)
	times, columns, samples := m.copyHistory(limit)
	h := History{
		StartUnixNanos: m.start.UnixNano(), TimesS: times, SamplesAPoint: samples,
		HostTotalBytes: now.HostTotal, HostUsedBytes: pointers(columns[0]), GPUs: []GPUHistory{},
	}
	for i, column := range columns[1:] {
		h.GPUs = append(h.GPUs, GPUHistory{TotalBytes: now.GPU[i].Total, UsedBytes: pointers(column)})
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

// series is a table of fixed size: one row per point, a column for the host and one for each GPU.
type series struct {
	times    []float64
	columns  [][]uint64
	perPoint int // samples that a full point covers: 1, 2, 4, …
	inLast   int // samples that the last point covers so far
}

func newSeries(gpus int) series {
	s := series{times: make([]float64, 0, maxPoints), columns: make([][]uint64, 1+gpus), perPoint: 1}
	for i := range s.columns {
		s.columns[i] = make([]uint64, 0, maxPoints)
	}
	return s
}

func (s *series) gpus() int { return len(s.columns) - 1 }

// add takes one sample, without allocating.
func (s *series) add(at float64, host uint64, gpus []uint64) {
	if s.inLast == s.perPoint && len(s.times) == maxPoints {
		s.halve()
	}
	if s.inLast == s.perPoint || len(s.times) == 0 {
		s.times = append(s.times, at)
		for i := range s.columns {
			s.columns[i] = append(s.columns[i], absent)
		}
		s.inLast = 0
	}
	s.inLast++
	last := len(s.times) - 1
	s.columns[0][last] = higher(s.columns[0][last], host)
	for i, used := range gpus {
		s.columns[1+i][last] = higher(s.columns[1+i][last], used)
	}
}

// halve merges every two neighbours of a full table.
func (s *series) halve() {
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

// merged appends to out the highest value of every group of neighbours. out may be the front of column itself.
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
