package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
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
		switch value.(type) {
		case nil, string, bool, float64:
		default:
			return fmt.Errorf("about: %q is neither text, number, boolean nor null", key)
		}
	}
	if err := cmp.Or(fault.InRange("number of ops", len(t.Ops), 1, maxNames),
		fault.InRange("number of modules", len(t.Modules), 1, maxNames),
		fault.InRange("number of tags", len(t.Tags), 1, MaxTags),
		fault.InRange("number of segments", len(t.Segments), 1, maxSegments),
		fault.InRange("number of lengths", len(t.Lengths), 1, MaxLengths),
		fault.InRange("number of calls", len(t.Calls), 0, maxCalls)); err != nil {
		return err
	}
	ops, err := ParseOps(t.Ops)
	if err != nil {
		return err
	}
	return cmp.Or(checkLengths(t.Lengths), checkCalls(t.Calls), t.checkSegments(ops))
}

func checkLengths(lengths []Length) error {
	if lengths[0].Of != nil {
		return fmt.Errorf("length 0 (%s) is the input's and is made of no other", lengths[0].Name)
	}
	for i, r := range lengths[1:] {
		if r.Of == nil || *r.Of < 0 || *r.Of > i || min(r.Kernel, r.Stride, r.Dilation) < 1 ||
			r.Padding < 0 || max(r.Kernel, r.Stride, r.Padding, r.Dilation) > maxField {
			return fmt.Errorf("length %d (%s) is no convolution of an earlier one", i+1, r.Name)
		}
	}
	return nil
}

var kinds = []string{KindLoad, KindMicro, KindAccumulate, KindStep, KindIteration, KindEvaluate,
	KindGenerate}

var phaseNames = []string{"load", PhaseLoadAgain, "forward", "backward", "optimizer", "evaluation",
	"generation"}

func (t *Trace) checkSegments(ops []Op) error {
	storages := lifetimes{}
	window := false // a micro segment has begun a window
	for i := range t.Segments {
		s := &t.Segments[i]
		err := s.check(t)
		if err == nil {
			err = cmp.Or(storages.check(s), s.checkPads(ops), s.checkCalls(t.Calls))
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

// check looks at a segment on its own.
func (s *Segment) check(t *Trace) error {
	if !slices.Contains(kinds, s.Kind) {
		return fmt.Errorf("this kind is not known")
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
		if len(column.index) != allocations || !areWithin(column.index, column.names) {
			return fmt.Errorf("%s has not the index of a name for each of %d allocations",
				column.label, allocations)
		}
	}
	return cmp.Or(s.checkShape(), s.checkPhases())
}

// areWithin reports whether all are indices of a list of so many.
func areWithin(indices []int32, count int) bool {
	return !slices.ContainsFunc(indices, func(i int32) bool { return i < 0 || int(i) >= count })
}

func (s *Segment) checkPhases() error {
	last := 0
	for i, p := range s.Phases {
		if !slices.Contains(phaseNames, p.Name) || p.Event < last || p.Event > len(s.Events) ||
			i == 0 && p.Event != 0 {
			return fmt.Errorf("phase %q is not known, or is out of order at event %d", p.Name,
				p.Event)
		}
		last = p.Event
	}
	return fault.InRange("number of phases", len(s.Phases), 1, maxNames)
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
