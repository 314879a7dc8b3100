package monitor

// Stats and GPUStats cross the C boundary as they are: `make generate` after a change, and raise ABI_VERSION in core/api/abi.go.

// Stats is the newest sample. Sizes are bytes.
type Stats struct {
	Samples   uint64 // taken since the start, at least 1
	Errors    uint64 // failed readings since the start, of a GPU or of the host
	UnixNanos int64  // wall clock of the newest sample
	HostTotal uint64 // 0 as long as the host has never answered; after a failed reading the host fields keep the last values
	HostUsed  uint64 // total less available
	HostPeak  uint64 // highest HostUsed since the start or the last reset
	GPUCount  int    // entries of GPU in use
	Alerts    uint64 // alerts raised and cleared so far: asking for them is worth it when this changes
	GPU       [MaxGPUs]GPUStats
}

// GPUStats is one GPU's memory in bytes. While the driver does not answer, Valid is false and the rest keeps the last values.
type GPUStats struct {
	Total, Used, Free   uint64
	Peak                uint64 // highest Used since the start or the last reset
	Valid               bool
	Allocated, Reserved uint64 // PyTorch's counters of this process at the last step; 0 before the first
	Headroom            uint64 // what training can still allocate (headroom.go); Free before the first step
	TorchValid          bool   // a step has told of PyTorch's counters
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

// ResetPeaks makes the newest values the peaks.
func (m *Monitor) ResetPeaks() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.stats.HostPeak = m.stats.HostUsed
	for i := range m.stats.GPUCount {
		m.stats.GPU[i].Peak = m.stats.GPU[i].Used
	}
}
