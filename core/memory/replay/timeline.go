package replay

import (
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

// timeline thins a run's events out.
type timeline struct {
	width  int // events of a stretch
	edge   int // event with which the next stretch begins
	events int // so far
	full   bool
	best   point
	points []point
}

type point struct {
	event, row          int
	allocated, reserved uint64
	components          [template.MaxComponents]uint64
}

// newTimeline keeps at most so many points of so many events.
func newTimeline(points, events int) *timeline {
	width := max((events+points-1)/points, 1)
	return &timeline{width: width, edge: width}
}

// offer takes the state after the next event.
func (s *timeline) offer(row int, allocated, reserved uint64,
	components *[template.MaxComponents]uint64) {
	if s.events == s.edge {
		s.flush()
		s.edge += s.width
	}
	highest := max(reserved, s.best.reserved)
	if !s.full || allocated > s.best.allocated {
		s.best = point{s.events, row, allocated, reserved, *components}
		s.full = true
	}
	s.best.reserved = highest
	s.events++
}

func (s *timeline) flush() {
	if s.full {
		s.points = append(s.points, s.best)
	}
	s.best, s.full = point{}, false
}

// record returns the timeline, without components that never held anything.
func (s *timeline) record(components []string) *peak.Timeline {
	s.flush()
	t := &peak.Timeline{Event: []int{}, Phase: []int{}, Allocated: []uint64{}, Reserved: []uint64{},
		Components: map[string][]uint64{}}
	for _, p := range s.points {
		t.Event, t.Phase = append(t.Event, p.event), append(t.Phase, p.row)
		t.Allocated, t.Reserved = append(t.Allocated, p.allocated), append(t.Reserved, p.reserved)
	}
	for i, name := range components {
		column, used := make([]uint64, len(s.points)), false
		for k, p := range s.points {
			column[k] = p.components[i]
			used = used || p.components[i] > 0
		}
		if used {
			t.Components[name] = column
		}
	}
	return t
}
