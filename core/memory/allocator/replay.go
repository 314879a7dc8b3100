package allocator

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Sequence is a run of allocations to replay.
type Sequence struct {
	// e >= 0: storage of e bytes is born, numbered from 0; e < 0: number -e-1 dies
	Events []int64 `json:"events"`
	// the cache is emptied before the events with these indices, in rising order
	EmptyCache []int  `json:"empty_cache"`
	Settings   string `json:"settings"` // text of PYTORCH_CUDA_ALLOC_CONF
	// what cudaMalloc can give in all; null: no end
	LimitBytes *uint64 `json:"limit_bytes"`
	// the device's memory, for per_process_memory_fraction; null: limit_bytes
	DeviceTotalBytes *uint64 `json:"device_total_bytes"`
}

// Replayed is what the allocator did, to compare with a recorded run. Sizes are bytes.
type Replayed struct {
	Reserved  []uint64 `json:"reserved"`  // after each event
	Allocated []uint64 `json:"allocated"` // after each event
	// indices of the births that ran out of memory; such a storage may die like others
	Failed   []int     `json:"failed"`
	Stats    Stats     `json:"stats"`    // at the end
	Segments []Segment `json:"segments"` // at the end
}

// Replay runs a sequence through a new allocator. A death of what was not born, or is dead, is
// InvalidArgument.
func Replay(sequence Sequence) (Replayed, error) {
	settings, err := ParseSettings(sequence.Settings)
	if err != nil {
		return Replayed{}, err
	}
	if err := sequence.check(); err != nil {
		return Replayed{}, err
	}
	if sequence.LimitBytes != nil {
		settings.Limit = *sequence.LimitBytes
	}
	if sequence.DeviceTotalBytes != nil {
		settings.DeviceTotal = *sequence.DeviceTotalBytes
	}
	return sequence.replay(New(settings))
}

// check looks at what Go's zero would otherwise mean "no end", and at the order of EmptyCache.
func (s Sequence) check() error {
	for _, size := range []*uint64{s.LimitBytes, s.DeviceTotalBytes} {
		if size != nil && *size == 0 {
			return fault.New(fault.InvalidArgument, "leave it out for a device without a limit",
				"a device of 0 bytes")
		}
	}
	if !slices.IsSorted(s.EmptyCache) || len(s.EmptyCache) > 0 &&
		(s.EmptyCache[0] < 0 || s.EmptyCache[len(s.EmptyCache)-1] > len(s.Events)) {
		return fault.New(fault.InvalidArgument, "",
			"empty_cache needs increasing indices from 0 to %d", len(s.Events))
	}
	return nil
}

func (s Sequence) replay(a *Allocator) (Replayed, error) {
	result := Replayed{Reserved: make([]uint64, len(s.Events)),
		Allocated: make([]uint64, len(s.Events)), Failed: []int{}}
	var blocks []Block
	empties := s.EmptyCache
	for index, event := range s.Events {
		for ; len(empties) > 0 && empties[0] == index; empties = empties[1:] {
			a.EmptyCache()
		}
		if event >= 0 {
			block, err := a.Malloc(uint64(event))
			if err != nil {
				result.Failed = append(result.Failed, index)
			}
			blocks = append(blocks, block)
		} else if number := -(event + 1); number >= int64(len(blocks)) ||
			a.Free(blocks[number]) != nil {
			return Replayed{}, fault.New(fault.InvalidArgument,
				"free every storage once, after its allocation",
				"event %d frees storage %d, which is not allocated", index, number)
		}
		result.Reserved[index], result.Allocated[index] = a.stats.Reserved, a.stats.Allocated
	}
	if len(empties) > 0 {
		a.EmptyCache()
	}
	result.Stats, result.Segments = a.Stats(), a.Segments()
	return result, nil
}
