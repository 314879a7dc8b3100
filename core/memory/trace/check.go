package trace

import (
	"fmt"
	"math"
	"slices"
)

// Bounds that arrays are made for.
const (
	MaxLengths = 64
	MaxTags    = 16
)

const (
	maxSegments = 1 << 12
	maxEvents   = 1 << 26 // of all segments
	maxNames    = 1 << 20
	maxStorage  = 1 << 50 // bytes of one storage
	maxField    = 1 << 20 // of a convolution
)

// check makes sure that every number of a decoded trace is what later code takes for granted.
func (t *Trace) check() error {
	for key, value := range t.About {
		switch v := value.(type) {
		case nil, string, bool:
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("about: %q is not a number", key)
			}
		default:
			return fmt.Errorf("about: %q is neither text, number, boolean nor null", key)
		}
	}
	for _, names := range []struct {
		label string
		n     int
		limit int
	}{{"ops", len(t.Ops), maxNames}, {"modules", len(t.Modules), maxNames},
		{"tags", len(t.Tags), MaxTags}, {"segments", len(t.Segments), maxSegments}} {
		if names.n == 0 || names.n > names.limit {
			return fmt.Errorf("%d %s; the range is 1 to %d", names.n, names.label, names.limit)
		}
	}
	for _, op := range t.Ops {
		if _, err := ParseOp(op); err != nil {
			return err
		}
	}
	if err := checkLengths(t.Lengths); err != nil {
		return err
	}
	if err := checkCalls(t.Calls); err != nil {
		return err
	}
	return t.checkSegments()
}

func checkLengths(lengths []Length) error {
	if len(lengths) == 0 || len(lengths) > MaxLengths {
		return fmt.Errorf("%d lengths; the range is 1 to %d, the input's first", len(lengths),
			MaxLengths)
	}
	for i, r := range lengths {
		if i == 0 {
			if r.Of != nil {
				return fmt.Errorf("length 0 (%s) is the input's and is made of no other", r.Name)
			}
			continue
		}
		if r.Of == nil || *r.Of < 0 || *r.Of >= i {
			return fmt.Errorf("length %d (%s) is not made of an earlier one", i, r.Name)
		}
		for _, n := range []struct{ value, low int64 }{{r.Kernel, 1}, {r.Stride, 1}, {r.Padding, 0},
			{r.Dilation, 1}} {
			if n.value < n.low || n.value > maxField {
				return fmt.Errorf("length %d (%s): kernel %d, stride %d, padding %d, dilation %d",
					i, r.Name, r.Kernel, r.Stride, r.Padding, r.Dilation)
			}
		}
	}
	return nil
}

var kinds = []string{KindLoad, KindMicro, KindAccumulate, KindStep, KindIteration, KindEvaluate,
	KindGenerate}

var phaseNames = []string{"load", PhaseLoadAgain, "forward", "backward", "optimizer", "evaluation",
	"generation"}

func (t *Trace) checkSegments() error {
	storages, ops := lifetimes{}, ParseOps(t.Ops)
	window := false // a micro segment has begun a window
	for i := range t.Segments {
		s := &t.Segments[i]
		err := s.check(t)
		if err == nil {
			err = storages.check(s)
		}
		if err == nil {
			err = s.checkPads(ops)
		}
		if err == nil {
			err = s.checkCalls(t.Calls)
		}
		switch {
		case err != nil:
		case s.Kind == KindLoad && i > 0:
			err = fmt.Errorf("load comes first, and once")
		case (s.Kind == KindAccumulate || s.Kind == KindStep) && !window:
			err = fmt.Errorf("no micro segment before it in its window")
		}
		if err != nil {
			return fmt.Errorf("segment %d (%s): %w", i, s.Kind, err)
		}
		window = s.Kind == KindMicro || window && s.Kind == KindAccumulate
	}
	return nil
}

// check looks at a segment by itself.
func (s *Segment) check(t *Trace) error {
	if !slices.Contains(kinds, s.Kind) {
		return fmt.Errorf("this kind is not known")
	}
	if err := s.checkShape(); err != nil {
		return err
	}
	allocations := 0
	for i, e := range s.Events {
		if e > maxStorage {
			return fmt.Errorf("event %d: a storage of %d bytes", i, e)
		}
		if e >= 0 {
			allocations++
		}
	}
	for _, column := range []struct {
		label string
		index []int32
		names int
	}{{"op", s.Op, len(t.Ops)}, {"module", s.Module, len(t.Modules)}, {"tag", s.Tag, len(t.Tags)}} {
		if len(column.index) != allocations {
			return fmt.Errorf("%d allocations, but %d entries in %s", allocations,
				len(column.index), column.label)
		}
		for i, index := range column.index {
			if index < 0 || int(index) >= column.names {
				return fmt.Errorf("allocation %d: %s %d of %d", i, column.label, index,
					column.names)
			}
		}
	}
	return s.checkPhases()
}

func (s *Segment) checkPhases() error {
	if len(s.Phases) == 0 || s.Phases[0].Event != 0 {
		return fmt.Errorf("the first phase does not begin at event 0")
	}
	for i, p := range s.Phases {
		if !slices.Contains(phaseNames, p.Name) {
			return fmt.Errorf("phase %q is not known", p.Name)
		}
		if p.Event > len(s.Events) || i > 0 && p.Event < s.Phases[i-1].Event {
			return fmt.Errorf("phase %q begins at event %d, out of order", p.Name, p.Event)
		}
	}
	return nil
}

// checkPads wants the length of a row before each padded copy, and what it copies in the same
// segment.
func (s *Segment) checkPads(ops []Op) error {
	for i, op := range s.Op {
		back := int(ops[op].Pad.Back)
		if back > 0 && (back > i || ops[s.Op[i-1]].Unit.Count != Elements) {
			return fmt.Errorf("allocation %d: a padded copy without its length before it, or "+
				"without what it copies", i)
		}
	}
	return nil
}

// checkShape wants a shape where one is needed to answer for others.
func (s *Segment) checkShape() error {
	shape, ok := s.Shape()
	if !ok {
		switch s.Kind {
		case KindLoad, KindStep, KindIteration:
			return nil
		}
		return fmt.Errorf("batch or length is missing")
	}
	return shape.Check()
}

// lifetimes follows the storages through the segments.
type lifetimes struct {
	events int
	freed  []bool // by storage
}

// check finds a segment that frees what is not allocated.
func (l *lifetimes) check(s *Segment) error {
	if l.events += len(s.Events); l.events > maxEvents {
		return fmt.Errorf("more than %d events", maxEvents)
	}
	for i, e := range s.Events {
		if e >= 0 {
			l.freed = append(l.freed, false)
			continue
		}
		number := -(e + 1)
		if number >= int64(len(l.freed)) || l.freed[number] {
			return fmt.Errorf("event %d frees storage %d, which is not allocated", i, number)
		}
		l.freed[number] = true
	}
	return nil
}
