package allocator

import (
	"cmp"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

const (
	unlimited = math.MaxUint64
	// divisionIntervals are the powers of two from 1 MiB on for which PyTorch keeps a number of
	// divisions.
	divisionIntervals = 16
)

// Settings are the options of PYTORCH_CUDA_ALLOC_CONF that change what is reserved, and the memory
// of the device. The zero value is PyTorch's default on a device without end. Sizes are bytes; 0
// means the default.
type Settings struct {
	// blocks from this size on are not split; default: all are
	MaxSplitSize uint64
	// how much larger than the request an unsplit oversize block may be; default 20 MiB
	MaxNonSplitRounding uint64
	// segment for requests between 1 and 10 MiB, page of large expandable segments; default 20 MiB
	LargeSegmentSize uint64
	// by interval from 1 MiB on, the first also for all below; 0 and 1: none
	RoundupPower2Divisions [divisionIntervals]uint64
	// share of what is allowed, 0 to 1, above which old blocks go; 0: never
	GarbageCollectionThreshold float64
	ExpandableSegments         bool //
	ThrowOnCudaMallocOOM       bool // fail before cudaMalloc would
	// share of DeviceTotal that may be reserved, 0 to 1; nil and 1: no limit of PyTorch's own
	MemoryFraction *float64

	// what cudaMalloc can give in all: the device's memory less the context and other processes; 0:
	// no end
	Limit       uint64
	DeviceTotal uint64 // the device's memory, of which MemoryFraction is a share; 0: Limit
	// fail instead of giving the whole cache back for one more attempt, which PyTorch does
	KeepCache bool
}

// filled puts the defaults in.
func (s Settings) filled() Settings {
	s.MaxNonSplitRounding = cmp.Or(s.MaxNonSplitRounding, 20*mib)
	s.LargeSegmentSize = cmp.Or(s.LargeSegmentSize, 20*mib)
	// else PyTorch would free a part of a segment
	s.MaxSplitSize = max(cmp.Or(s.MaxSplitSize, unlimited), s.LargeSegmentSize)
	s.DeviceTotal = cmp.Or(s.DeviceTotal, s.Limit)
	return s
}

// allowed is what the memory fraction lets the allocator reserve.
func (s Settings) allowed() uint64 {
	if s.MemoryFraction == nil || *s.MemoryFraction >= 1 || s.DeviceTotal == 0 {
		return unlimited
	}
	return uint64(*s.MemoryFraction * float64(s.DeviceTotal))
}

// roundSize is the size of the block for a request: at least 512 B, a multiple of 512 B, or the
// next division of the power of two below where divisions are set and the request is above 512 B x
// divisions.
func (s *Settings) roundSize(bytes uint64) uint64 {
	if bytes < minBlock {
		return minBlock
	}
	interval := min(max(bits.Len64(bytes)-1, 20)-20, divisionIntervals-1)
	if divisions := s.RoundupPower2Divisions[interval]; divisions > 1 &&
		bytes > minBlock*divisions {
		return roundToDivision(bytes, divisions)
	}
	return (bytes + minBlock - 1) &^ (minBlock - 1)
}

// roundToDivision rounds up to a multiple of (power of two below) / divisions; 1200 with 4
// divisions is 1280.
func roundToDivision(bytes, divisions uint64) uint64 {
	below := uint64(1) << (bits.Len64(bytes) - 1)
	if below == bytes {
		return bytes
	}
	step := below >> (bits.Len64(divisions) - 1)
	if step == 0 {
		return below << 1
	}
	return (bytes + step - 1) &^ (step - 1)
}

// segmentSize is the size requested from the device when a rounded size fits nowhere.
func (s *Settings) segmentSize(size uint64) uint64 {
	switch {
	case size <= maxSmall:
		return smallSegment
	case size < minLargeAlloc:
		return s.LargeSegmentSize
	default:
		return (size + roundLarge - 1) &^ (roundLarge - 1)
	}
}

// readDivisions reads roundup_power2_divisions: one power of two for all sizes, or a list of
// "MB:divisions" with powers of two of MB, where ">" stands for everything above the last one. The
// first entry counts for all sizes below it too; sizes between two entries of the list that are not
// named get none.
func readDivisions(s *Settings, v value) error {
	table := &s.RoundupPower2Divisions
	*table = [divisionIntervals]uint64{}
	if v.word != "" {
		divisions, ok := powerOfTwo(v.word)
		if !ok {
			return v.wrong("a power of two, or a list such as [256:1,512:2,>:8]")
		}
		fill(table[:], divisions)
		return nil
	}
	last, first := 0, true
	for entry := range strings.SplitSeq(v.list, ",") {
		size, number, _ := strings.Cut(entry, ":")
		divisions, ok := powerOfTwo(number)
		boundary, named := powerOfTwo(size)
		switch {
		case entry == "":
		case !ok && number != "0" || !named && size != ">":
			return v.wrong("a list such as [256:1,512:2,>:8], of powers of two; divisions may be 0")
		case size == ">":
			fill(table[last+1:], divisions)
		default:
			last = min(bits.Len64(boundary)-1, divisionIntervals-1)
			if first {
				fill(table[:last], divisions)
			}
			table[last], first = divisions, false
		}
	}
	return nil
}

func fill(table []uint64, divisions uint64) {
	for i := range table {
		table[i] = divisions
	}
}

func powerOfTwo(word string) (uint64, bool) {
	number, err := strconv.ParseUint(word, 10, 64)
	return number, err == nil && bits.OnesCount64(number) == 1
}
