package memory

// Timeline is the memory after some of a run's events: of each stretch of equal length, the event with the most allocated.
// Sizes are bytes; the lists are as long as each other.
type Timeline struct {
	Event      []int               `json:"event"` // counted from the run's start
	Phase      []int               `json:"phase"` // index into the estimate's phases
	Allocated  []uint64            `json:"allocated"`
	Reserved   []uint64            `json:"reserved"` // most in the stretch
	Components map[string][]uint64 `json:"components"`
}

// sampler thins a run's events out.
type sampler struct {
	width  int // events of a stretch
	edge   int // event with which the next stretch begins
	passed int // events of the segments before
	full   bool
	best   point
	points []point
}

type point struct {
	event, row          int
	allocated, reserved uint64
	parts               [maxParts]uint64
}

// newSampler keeps at most so many points of so many events.
func newSampler(points, events int) *sampler {
	width := max((events+points-1)/points, 1)
	return &sampler{width: width, edge: width}
}

func (s *sampler) offer(at, row int, allocated, reserved uint64, parts *[maxParts]uint64) {
	event := s.passed + at
	for event >= s.edge {
		s.flush()
		s.edge += s.width
	}
	most := max(reserved, s.best.reserved)
	if !s.full || allocated > s.best.allocated {
		s.best = point{event, row, allocated, reserved, *parts}
		s.full = true
	}
	s.best.reserved = most
}

func (s *sampler) flush() {
	if s.full {
		s.points = append(s.points, s.best)
	}
	s.best, s.full = point{}, false
}

// timeline gives what was kept; components that never held anything are left out.
func (s *sampler) timeline(parts []string) *Timeline {
	s.flush()
	t := &Timeline{Event: []int{}, Phase: []int{}, Allocated: []uint64{}, Reserved: []uint64{}, Components: map[string][]uint64{}}
	for _, p := range s.points {
		t.Event, t.Phase = append(t.Event, p.event), append(t.Phase, p.row)
		t.Allocated, t.Reserved = append(t.Allocated, p.allocated), append(t.Reserved, p.reserved)
	}
	for i, name := range parts {
		column, any := make([]uint64, len(s.points)), false
		for k, p := range s.points {
			column[k] = p.parts[i]
			any = any || p.parts[i] > 0
		}
		if any {
			t.Components[name] = column
		}
	}
	return t
}
