package allocator

// Stats is the state of an allocator in numbers, sizes in bytes. The names are those of
// torch.cuda.memory_stats.
type Stats struct {
	// in live blocks, rounding and unsplit rests included
	Allocated     uint64 `json:"allocated"`
	Requested     uint64 `json:"requested"`      // in live blocks, as callers asked for
	Reserved      uint64 `json:"reserved"`       // taken from the device
	PeakAllocated uint64 `json:"peak_allocated"` // peaks are since the start or the last ResetPeaks
	PeakRequested uint64 `json:"peak_requested"`
	PeakReserved  uint64 `json:"peak_reserved"`
	// attempts after the whole cache was given back (num_alloc_retries)
	Retries uint64 `json:"retries"`
	OOMs    uint64 `json:"ooms"` // allocations that failed
	// from cudaMalloc; expandable segments are not counted, as in PyTorch
	Segments    uint64 `json:"segments"`
	LargestFree uint64 `json:"largest_free"` // the largest block in the cache
	// in free blocks that share a segment; 0 for expandable segments, as in PyTorch
	InactiveSplit uint64 `json:"inactive_split"`
}

// Stats returns the figures of this moment.
func (a *Allocator) Stats() Stats {
	s := a.stats
	s.LargestFree = max(a.small.largest(), a.large.largest())
	return s
}

// Held is what is allocated and what is reserved at this moment.
func (a *Allocator) Held() (allocated, reserved uint64) {
	return a.stats.Allocated, a.stats.Reserved
}

// ResetPeaks lets the peaks start again from what is in use now.
func (a *Allocator) ResetPeaks() {
	s := &a.stats
	s.PeakAllocated, s.PeakRequested, s.PeakReserved = s.Allocated, s.Requested, s.Reserved
}

func (s *Stats) allocate(size, requested uint64) {
	s.Allocated += size
	s.Requested += requested
	s.PeakAllocated = max(s.PeakAllocated, s.Allocated)
	s.PeakRequested = max(s.PeakRequested, s.Requested)
}

func (s *Stats) free(size, requested uint64) {
	s.Allocated -= size
	s.Requested -= requested
}

func (s *Stats) reserve(size uint64) {
	s.Reserved += size
	s.PeakReserved = max(s.PeakReserved, s.Reserved)
}
