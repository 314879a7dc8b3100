package memory

import (
	"fmt"
	"math"
	"slices"
)

const (
	maxSegments = 1 << 12
	maxEvents   = 1 << 26 // of all segments
	maxNames    = 1 << 20
	maxRungs    = 64
	maxTags     = 16
	maxStorage  = 1 << 50 // bytes of one storage
	maxField    = 1 << 20 // of a convolution
)

var kinds = []string{KindLoad, KindMicro, KindAccumulate, KindStep, KindIteration, KindEvaluate, KindGenerate}

var phaseNames = []string{"load", "forward", "backward", "optimizer", "evaluation", "generation"}

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
		what string
		n    int
		most int
	}{{"ops", len(t.Ops), maxNames}, {"modules", len(t.Modules), maxNames}, {"tags", len(t.Tags), maxTags}, {"segments", len(t.Segments), maxSegments}} {
		if names.n == 0 || names.n > names.most {
			return fmt.Errorf("%d %s; the range is 1 to %d", names.n, names.what, names.most)
		}
	}
	for _, op := range t.Ops {
		if _, err := parseRule(op); err != nil {
			return err
		}
	}
	if err := checkLadder(t.Lengths); err != nil {
		return err
	}
	return t.checkSegments()
}

func checkLadder(rungs []Rung) error {
	if len(rungs) == 0 || len(rungs) > maxRungs {
		return fmt.Errorf("%d lengths; the range is 1 to %d, the input's first", len(rungs), maxRungs)
	}
	for i, r := range rungs {
		if i == 0 {
			if r.Of != nil {
				return fmt.Errorf("length 0 (%s) is the input's and is made of no other", r.Name)
			}
			continue
		}
		if r.Of == nil || *r.Of < 0 || *r.Of >= i {
			return fmt.Errorf("length %d (%s) is not made of an earlier one", i, r.Name)
		}
		for _, n := range []struct{ value, least int64 }{{r.Kernel, 1}, {r.Stride, 1}, {r.Padding, 0}, {r.Dilation, 1}} {
			if n.value < n.least || n.value > maxField {
				return fmt.Errorf("length %d (%s): kernel %d, stride %d, padding %d, dilation %d", i, r.Name, r.Kernel, r.Stride, r.Padding, r.Dilation)
			}
		}
	}
	return nil
}

func (t *Trace) checkSegments() error {
	life, rules := lifeCheck{}, rulesOf(t.Ops)
	window := false // a micro segment has begun a window
	for i := range t.Segments {
		s := &t.Segments[i]
		if life.events += len(s.Events); life.events > maxEvents {
			return fmt.Errorf("more than %d events", maxEvents)
		}
		err := s.check(t)
		if err == nil {
			err = life.check(s)
		}
		if err == nil {
			err = s.checkPads(rules)
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
	births := 0
	for i, e := range s.Events {
		if e > maxStorage {
			return fmt.Errorf("event %d: a storage of %d bytes", i, e)
		}
		if e >= 0 {
			births++
		}
	}
	for _, column := range []struct {
		what  string
		index []int32
		names int
	}{{"op", s.Op, len(t.Ops)}, {"module", s.Module, len(t.Modules)}, {"tag", s.Tag, len(t.Tags)}} {
		if len(column.index) != births {
			return fmt.Errorf("%d births, but %d entries in %s", births, len(column.index), column.what)
		}
		for i, index := range column.index {
			if index < 0 || int(index) >= column.names {
				return fmt.Errorf("birth %d: %s %d of %d", i, column.what, index, column.names)
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

// checkShape wants a shape where one is needed to answer for others.
func (s *Segment) checkShape() error {
	shape, given := s.shape()
	if !given {
		switch s.Kind {
		case KindLoad, KindStep, KindIteration:
			return nil
		}
		return fmt.Errorf("batch or length is missing")
	}
	return shape.check()
}

func (s Shape) check() error {
	switch {
	case s.Batch < 1 || s.Batch > maxBatch:
		return fmt.Errorf("batch is %d; the range is 1 to %d", s.Batch, maxBatch)
	case s.Length < 1 || s.Length > maxLength:
		return fmt.Errorf("length is %d; the range is 1 to %d", s.Length, int64(maxLength))
	case s.Labels < 0 || s.Labels > maxLabels:
		return fmt.Errorf("labels is %d; the range is 0 to %d", s.Labels, maxLabels)
	}
	return nil
}

// lifeCheck follows the storages through the segments.
type lifeCheck struct {
	events int
	dead   []bool // by storage
}

func (l *lifeCheck) check(s *Segment) error {
	for i, e := range s.Events {
		if e >= 0 {
			l.dead = append(l.dead, false)
			continue
		}
		number := -(e + 1)
		if number >= int64(len(l.dead)) || l.dead[number] {
			return fmt.Errorf("event %d ends storage %d, which is not alive", i, number)
		}
		l.dead[number] = true
	}
	return nil
}
