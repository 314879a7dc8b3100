package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// played is what outlives a segment.
type played struct {
	template *template.Template // by which others name its storages
	position template.Position
	storages []survivor
}

type survivor struct {
	block     allocator.Block
	module    int32
	component uint8
	allocated bool
}

// inheritedFree frees a storage of an earlier segment before an event.
type inheritedFree struct {
	event int32
	survivor
}

func nextEvent(frees []inheritedFree) int {
	if len(frees) == 0 {
		return math.MaxInt
	}
	return int(frees[0].event)
}

// freeUntil frees what is freed before an event, and returns the rest.
func (p *Player) freeUntil(frees []inheritedFree, event int) []inheritedFree {
	for len(frees) > 0 && int(frees[0].event) <= event {
		p.free(frees[0].survivor)
		frees = frees[1:]
	}
	return frees
}

// findInherited lists what of earlier segments is freed in a segment: where the trace shows it for
// these two templates, else at the end of the segment in which it expires, and two windows later at
// the latest. Inputs that no micro-batch of the step before has taken are freed after those that
// this one places.
func (p *Player) findInherited(s Segment) {
	p.inherited = p.inherited[:0]
	if s.Position.Order == 0 {
		for _, input := range p.ahead {
			p.inherited = append(p.inherited, inheritedFree{s.Template.Inputs, input})
		}
		p.ahead = p.ahead[:0]
	}
	p.expireBefore(s.Position.Window - template.MaxWindows)
	for i := range s.Template.Inherited {
		g := &s.Template.Inherited[i]
		for _, t := range p.segmentsAt(s.Position, g.Distance) {
			if t.template == g.From {
				for _, f := range g.Frees {
					p.freeAt(f.Event, t, f.Survivor)
				}
			}
		}
	}
	for _, t := range p.withinReach(s.Position) {
		for _, e := range t.template.Expiries(t.position.Role) {
			if e.IsIn(t.position, s.Position) {
				p.freeAt(int32(len(s.Template.Events)), t, e.Survivors...)
			}
		}
	}
	byEvent := func(a, b inheritedFree) int { return cmp.Compare(a.event, b.event) }
	if !slices.IsSortedFunc(p.inherited, byEvent) {
		slices.SortStableFunc(p.inherited, byEvent)
	}
}

// segmentsAt returns the segments at a distance from a position.
func (p *Player) segmentsAt(current template.Position, d template.Distance) []*played {
	all := p.windows
	switch {
	case d.Segments > 0:
		if i := len(all) - d.Segments; i >= 0 {
			return all[i : i+1]
		}
		return nil
	case d.Role == template.Load:
		return p.load
	}
	var matches []*played
	for i := len(all) - 1; i >= 0 && all[i].position.Window >= current.Window-d.Windows; i-- {
		if q := all[i].position; q.Window == current.Window-d.Windows && q.Role == d.Role {
			matches = append(matches, all[i])
		}
	}
	return matches
}

// withinReach is where to look for storages that expire in a segment. Windows of thousands of
// micro-batches are not searched again for each of them.
func (p *Player) withinReach(current template.Position) []*played {
	all := p.windows
	if current.Role.Kind() == trace.KindAccumulate && current.Order > 1 {
		return all[max(len(all)-template.MaxSegments, 0):]
	}
	return all
}

// expireBefore forgets segments of windows before one. What expires and is still there is freed
// now.
func (p *Player) expireBefore(window int) {
	n := 0
	for ; n < len(p.windows) && p.windows[n].position.Window < window; n++ {
		p.expire(p.windows[n])
	}
	p.windows = slices.Delete(p.windows, 0, n)
}

// expire frees all of a segment's survivors that are not there for good.
func (p *Player) expire(t *played) {
	for _, e := range t.template.Expiries(t.position.Role) {
		p.freeAt(0, t, e.Survivors...)
	}
}

// freeAt frees survivors of a segment, unless they are freed already, before an event of this one.
func (p *Player) freeAt(event int32, t *played, survivors ...int32) {
	for _, number := range survivors {
		if s := &t.storages[number]; s.allocated {
			s.allocated = false
			p.inherited = append(p.inherited, inheritedFree{event, *s})
		}
	}
}

// keepSurvivors records what outlives a segment that was played to its end.
func (p *Player) keepSurvivors(s Segment) {
	t := &played{template: s.Template.Base(), position: s.Position,
		storages: make([]survivor, 0, len(s.Template.Survivors))}
	for _, i := range s.Template.Survivors {
		t.storages = append(t.storages, p.holding(&s, i, p.blocks[i]))
	}
	if s.Position.Role == template.Load {
		p.load = []*played{t}
	} else {
		p.windows = append(p.windows, t)
	}
}

// Abandon returns up the window that a segment failed in, and empties the cache: it frees what that
// segment allocated, and what the window's earlier ones left that would expire. What is there for
// good stays. Freeing twice changes nothing.
func (p *Player) Abandon(f *Failure) {
	p.freeUntil(p.inherited, math.MaxInt)
	for _, e := range p.events[:f.event] {
		if e >= 0 {
			_ = p.Allocator.Free(p.blocks[e])
		}
	}
	p.inherited = p.inherited[:0]
	for _, input := range p.ahead {
		_ = p.Allocator.Free(input.block)
	}
	p.ahead = p.ahead[:0]
	for _, t := range p.windows {
		if t.position.Window == f.Segment.Position.Window {
			p.expire(t)
		}
	}
	p.freeUntil(p.inherited, math.MaxInt)
	p.Allocator.EmptyCache()
}
