package trace

import (
	"fmt"
	"slices"
)

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
