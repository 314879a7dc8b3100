// Package peak has the records of an estimate: how much memory a run takes, when most, and for
// what. Sizes are bytes.
package peak

// Estimate is the memory of a run.
type Estimate struct {
	Estimator string `json:"estimator"` // "trace"
	// in blocks of live storages, with their rounding
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakRequested uint64 `json:"peak_requested"` // the same without rounding
	PeakReserved  uint64 `json:"peak_reserved"`  // taken from the device by the allocator
	// reserved and device_bytes; null without them
	PeakDevice *uint64 `json:"peak_device"`
	// of the host, for offloaded checkpoints of one micro-batch; null where that is not known
	PinnedBytes *uint64 `json:"pinned_bytes"`
	// whether every allocation found room; null without a limit
	Fits *bool `json:"fits"`
	// how often the cache was given back to find room
	Retries     uint64       `json:"retries"`
	OutOfMemory *OutOfMemory `json:"out_of_memory"` // where the run ends; null when it does not
	// share of the reserved memory without a storage when it was most, 0 to 1
	Fragmentation float64 `json:"fragmentation"`
	AtPeak        AtPeak  `json:"at_peak"` // when most was allocated
	// by kind of segment and phase, in order of appearance
	Phases   []Phase   `json:"phases"`
	Timeline *Timeline `json:"timeline"` // null unless asked for
	// storages of the played segments whose size has no exact formula
	Approximate int      `json:"approximate"`
	Notes       []string `json:"notes"`
}

// OutOfMemory is an allocation that found no room.
type OutOfMemory struct {
	Segment   string `json:"segment"`
	Phase     string `json:"phase"`
	Op        string `json:"op"`
	Module    string `json:"module"`
	Wanted    uint64 `json:"wanted"`
	Reserved  uint64 `json:"reserved"`  // after the cache was given back
	Allocated uint64 `json:"allocated"` // of that
}

// AtPeak is what the highest moment consists of.
type AtPeak struct {
	Segment    string            `json:"segment"`
	Phase      string            `json:"phase"`
	Op         string            `json:"op"` // whose result raised it
	Module     string            `json:"module"`
	Components map[string]uint64 `json:"components"`
	Modules    []ModuleBytes     `json:"modules"`
}

// Phase is the highest moment of a phase, over all segments of its kind.
type Phase struct {
	Segment       string `json:"segment"`
	Phase         string `json:"phase"`
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
}

// Timeline is the memory after some of a run's events: of each stretch of equal length, the event
// with the most allocated. The lists are as long as each other.
type Timeline struct {
	Event      []int               `json:"event"` // counted from the run's start
	Phase      []int               `json:"phase"` // index into the estimate's phases
	Allocated  []uint64            `json:"allocated"`
	Reserved   []uint64            `json:"reserved"` // most in the stretch
	Components map[string][]uint64 `json:"components"`
}
