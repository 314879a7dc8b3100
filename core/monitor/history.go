package monitor

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
		StartUnixNanos: m.properties.began.UnixNano(), TimesS: times, SamplesAPoint: samples,
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
