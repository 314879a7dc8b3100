package memory

import "github.com/asrconfig/asrconfig-go/core/memory/allocator"

// watcher sees every allocation of a run, and finds what is alive at the peak.
type watcher struct {
	held      []uint64 // by birth of the segment: bytes of its block
	allocated uint64
	reserved  uint64
	peak      moment
	densest   uint64 // most reserved so far
	sparse    uint64 // of that, not allocated when it was reserved
	rows      []PhasePeak
	timeline  *sampler // nil without

	parts   [maxParts]uint64 // held when the segment began, by component
	modules []uint64         // likewise, by module

	segment struct { // the one being played
		planned
		allocated, reserved uint64 // at its beginning
		grown               []growth
		told                int   // of those, in the timeline
		rows                []int // of its phases
		phase               int
		next                int32 // birth with which the next phase begins
		peakAt              int   // event of the run's peak; -1: not in this segment
	}
}

// growth is the reserved memory from an event on.
type growth struct {
	at       int
	reserved uint64
}

// moment is the highest point of a run.
type moment struct {
	allocated uint64
	segment   planned
	birth     int32
	parts     [maxParts]uint64
	modules   []uint64
}

func newWatcher(m *Model, timeline *sampler) *watcher {
	return &watcher{modules: make([]uint64, len(m.modules)), timeline: timeline}
}

func (w *watcher) begin(s planned) {
	w.held = resized(w.held, len(s.class.op))
	now := &w.segment
	now.planned, now.allocated, now.reserved = s, w.allocated, w.reserved
	now.grown, now.rows, now.told, now.peakAt = now.grown[:0], now.rows[:0], 0, -1
	for _, p := range s.class.phases {
		now.rows = append(now.rows, w.row(s.class.kind, p.name))
	}
	w.enter(0)
}

// enter begins a phase of the segment.
func (w *watcher) enter(phase int) {
	now := &w.segment
	now.phase, now.next = phase, int32(len(w.held))+1
	if phases := now.class.phases; phase+1 < len(phases) {
		now.next = phases[phase+1].birth
	}
}

// row finds or makes the row of a phase: all segments of a kind share it.
func (w *watcher) row(segment, phase string) int {
	for i := range w.rows {
		if w.rows[i].Segment == segment && w.rows[i].Phase == phase {
			return i
		}
	}
	w.rows = append(w.rows, PhasePeak{Segment: segment, Phase: phase})
	return len(w.rows) - 1
}

// phases gives the rows of the phases that were reached.
func (w *watcher) phases() []PhasePeak {
	n := len(w.rows)
	for n > 0 && w.rows[n-1].PeakReserved == 0 {
		n--
	}
	return w.rows[:n]
}

// born writes down an allocation; s is the allocator's state after it.
func (w *watcher) born(at int, birth int32, s allocator.Stats) {
	now := &w.segment
	for birth >= now.next {
		w.enter(now.phase + 1)
	}
	w.held[birth] = s.Allocated - w.allocated
	w.allocated = s.Allocated
	if s.Reserved != w.reserved {
		w.reserve(at, s)
	}
	row := &w.rows[now.rows[now.phase]]
	row.PeakAllocated = max(row.PeakAllocated, s.Allocated)
	row.PeakReserved = max(row.PeakReserved, s.Reserved)
	if s.Allocated > w.peak.allocated {
		w.peak.allocated, w.peak.birth, now.peakAt = s.Allocated, birth, at
	}
}

func (w *watcher) reserve(at int, s allocator.Stats) {
	w.reserved = s.Reserved
	w.segment.grown = append(w.segment.grown, growth{at, s.Reserved})
	if s.Reserved > w.densest {
		w.densest, w.sparse = s.Reserved, s.Reserved-s.Allocated
	}
}

// sweep goes through the events of the segment that were played once more, with the blocks' sizes known, and follows what
// is held for what.
func (w *watcher) sweep(events []int32, parts []uint8, deaths []death) {
	now := &w.segment
	c := now.class
	if now.peakAt >= 0 {
		w.peak.segment = now.planned
	}
	w.enter(0)
	for at, e := range events {
		for len(deaths) > 0 && int(deaths[0].pos) <= at {
			w.drop(deaths[0].kept)
			deaths = deaths[1:]
		}
		birth, sign := e, uint64(1)
		if e < 0 {
			birth, sign = ^e, ^uint64(0) // adding it subtracts
		}
		w.parts[parts[birth]] += sign * w.held[birth]
		w.modules[c.module[birth]] += sign * w.held[birth]
		now.allocated += sign * w.held[birth]
		if at == now.peakAt {
			w.peak.parts = w.parts
			w.peak.modules = append(w.peak.modules[:0], w.modules...)
		}
		if w.timeline != nil {
			w.sample(at, e)
		}
	}
	if len(events) == len(c.events) {
		for _, d := range deaths {
			w.drop(d.kept)
		}
	}
	if w.timeline != nil {
		w.timeline.passed += len(events)
	}
}

func (w *watcher) drop(k kept) {
	w.parts[k.part] -= k.held
	w.modules[k.module] -= k.held
	w.segment.allocated -= k.held
}

// sample offers the state after an event to the timeline.
func (w *watcher) sample(at int, e int32) {
	now := &w.segment
	for e >= now.next {
		w.enter(now.phase + 1)
	}
	for ; now.told < len(now.grown) && now.grown[now.told].at <= at; now.told++ {
		now.reserved = now.grown[now.told].reserved
	}
	w.timeline.offer(at, now.rows[now.phase], now.allocated, now.reserved, &w.parts)
}
