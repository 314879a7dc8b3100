package replay

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

// Observer follows what is allocated during a run and what for, and keeps the highest moment. A
// storage counts with its block's size: rounding, and what the allocator did not split off.
type Observer struct {
	peak                Moment
	allocated, reserved uint64
	components          [template.MaxComponents]uint64
	modules             []uint64
	// what the peak consists of is still to be copied, before the next free
	rising bool

	mostReserved uint64
	unallocated  uint64 // of that, when it was reserved
	phases       []peak.Phase
	timeline     *timeline // nil without

	rows []int // of the segment's phases, in phases
	segment
}

// segment is the one being replayed.
type segment struct {
	Segment
	phase     int
	nextPhase int32 // storage with which it begins
}

// Moment is a point of a run.
type Moment struct {
	Segment    Segment
	Storage    int32 // the newest
	Allocated  uint64
	Components [template.MaxComponents]uint64
	Modules    []uint64
}

// NewObserver follows a run of so many events, with a timeline of at most so many points if any.
func NewObserver(modules, points, events int) *Observer {
	o := &Observer{modules: make([]uint64, modules)}
	if points > 0 {
		width := max((events+points-1)/points, 1)
		o.timeline = &timeline{width: width, edge: width}
	}
	return o
}

func (o *Observer) begin(s Segment) {
	o.segment = segment{Segment: s}
	o.rows = o.rows[:0]
	for _, p := range s.Template.Phases {
		o.rows = append(o.rows, o.row(s.Template.Kind, p.Name))
	}
	o.enter(0)
}

// enter begins a phase of the segment.
func (o *Observer) enter(phase int) {
	o.phase, o.nextPhase = phase, math.MaxInt32
	if phases := o.Template.Phases; phase+1 < len(phases) {
		o.nextPhase = phases[phase+1].Storage
	}
}

// row finds or makes the row of a phase: all segments of a kind share it.
func (o *Observer) row(kind, phase string) int {
	for i := range o.phases {
		if o.phases[i].Segment == kind && o.phases[i].Phase == phase {
			return i
		}
	}
	o.phases = append(o.phases, peak.Phase{Segment: kind, Phase: phase})
	return len(o.phases) - 1
}

// allocate records an allocation, and how much is allocated and reserved after it.
func (o *Observer) allocate(storage int32, component uint8, allocated, reserved uint64) {
	for storage >= o.nextPhase {
		o.enter(o.phase + 1)
	}
	bytes := allocated - o.allocated
	o.allocated = allocated
	o.components[component] += bytes
	o.modules[o.Template.Storages[storage].Module] += bytes
	if reserved > o.mostReserved {
		o.mostReserved, o.unallocated = reserved, reserved-allocated
	}
	o.reserved = reserved
	row := &o.phases[o.rows[o.phase]]
	row.PeakAllocated = max(row.PeakAllocated, allocated)
	row.PeakReserved = max(row.PeakReserved, reserved)
	if allocated > o.peak.Allocated {
		o.peak.Segment, o.peak.Storage, o.peak.Allocated, o.rising =
			o.Segment, storage, allocated, true
	}
}

// free records that a storage was freed, and how much is allocated after it.
func (o *Observer) free(module int32, component uint8, allocated uint64) {
	o.settle()
	bytes := o.allocated - allocated
	o.allocated = allocated
	o.components[component] -= bytes
	o.modules[module] -= bytes
}

// settle copies what the peak consists of.
func (o *Observer) settle() {
	if o.rising {
		o.peak.Components, o.peak.Modules = o.components, append(o.peak.Modules[:0], o.modules...)
		o.rising = false
	}
}

// Highest is the moment at which most was allocated; without a template if nothing was.
func (o *Observer) Highest() Moment {
	o.settle()
	return o.peak
}

// sample offers the state after an event to the timeline.
func (o *Observer) sample() {
	if o.timeline != nil {
		o.timeline.offer(o.rows[o.phase], o.allocated, o.reserved, &o.components)
	}
}

// Fragmentation is the share of the reserved memory that was not allocated when it was most.
func (o *Observer) Fragmentation() float64 {
	if o.mostReserved == 0 {
		return 0
	}
	return float64(o.unallocated) / float64(o.mostReserved)
}

// Phases are those that were reached.
func (o *Observer) Phases() []peak.Phase {
	n := len(o.phases)
	for n > 0 && o.phases[n-1].PeakReserved == 0 {
		n--
	}
	return o.phases[:n]
}

// Timeline returns the points, with the components' names; nil without.
func (o *Observer) Timeline(components []string) *peak.Timeline {
	return o.timeline.record(components)
}

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
	if s == nil {
		return nil
	}
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
