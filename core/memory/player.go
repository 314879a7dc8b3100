package memory

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
)

// player runs segments through one allocator.
type player struct {
	vars    variables
	alloc   *allocator.Allocator
	reduce  reducer
	load    *played
	history []*played // segments of this window and the two before
	spare   []*played
	watch   *watcher // nil when only the allocator's own figures are wanted

	blocks  []allocator.Block // of the segment's births
	sizes   []uint64          // of the segment's forms, in bytes
	events  []int32           // the segment's
	parts   []uint8           // components of the segment's births
	changed []int32           // events of a segment without some copies

	otherParts []uint8 // likewise components
	values     []int64 // variables of the shape
	deaths     []death // of earlier segments' storages in this segment
	identity   []int32
}

// played is what is left of a segment.
type played struct {
	class *class // the one that names its storages
	place place
	slots []kept
}

// kept is a storage that outlived its segment.
type kept struct {
	block  allocator.Block
	held   uint64 // bytes, where a watcher counts them
	module int32
	part   uint8
	alive  bool
}

// death ends a storage of an earlier segment before an event.
type death struct {
	pos  int32
	kept kept
}

// failure is an allocation that found no room.
type failure struct {
	segment planned
	birth   int32
	at      int // the event
	cause   *allocator.OutOfMemory
}

func newPlayer(m *Model, settings allocator.Settings, gpu GPU) *player {
	return &player{vars: m.vars, alloc: allocator.New(settings), reduce: gpu.reducer()}
}

// play runs one segment. A failure is the device running out of memory; the segment then ends there.
func (p *player) play(s planned) (*failure, error) {
	form, err := p.prepare(s)
	if err != nil {
		return nil, err
	}
	events, blocks, sizes, watch := p.events, p.blocks, p.sizes, p.watch
	left, next := p.deaths, nextOf(p.deaths)
	for at, e := range events {
		if at >= next {
			left = p.bury(left, at)
			next = nextOf(left)
		}
		if e < 0 {
			_ = p.alloc.Free(blocks[^e]) // the trace was checked: it is alive
			if watch != nil {
				watch.allocated -= watch.held[^e]
			}
			continue
		}
		block, err := p.alloc.Malloc(sizes[form[e]])
		if err != nil {
			return p.failed(s, e, at, err)
		}
		blocks[e] = block
		if watch != nil {
			watch.born(at, e, p.alloc.Stats())
		}
	}
	p.bury(left, math.MaxInt)
	if watch != nil {
		watch.sweep(events, p.parts, p.deaths)
	}
	p.keep(s)
	return nil, nil
}

func (p *player) failed(s planned, birth int32, at int, err error) (*failure, error) {
	var full *allocator.OutOfMemory
	if !errors.As(err, &full) {
		return nil, err
	}
	if p.watch != nil {
		p.watch.sweep(p.events[:at], p.parts, p.deaths)
	}
	return &failure{s, birth, at, full}, nil
}

// abandon lets go of the window that a segment failed in, and gives the cache back: what that segment made, and what the
// window's earlier ones left that would die some day. What is left for good stays. Freeing twice changes nothing.
func (p *player) abandon(f *failure) {
	p.bury(p.deaths, math.MaxInt)
	for _, e := range p.events[:f.at] {
		if e >= 0 {
			_ = p.alloc.Free(p.blocks[e])
		}
	}
	p.deaths = p.deaths[:0]
	for _, t := range p.history {
		if t.place.window == f.segment.place.window {
			p.takeFated(t)
		}
	}
	p.bury(p.deaths, math.MaxInt)
	p.alloc.EmptyCache()
}

// prepare evaluates the sizes and finds the deaths of a segment.
func (p *player) prepare(s planned) (form []int32, err error) {
	c := s.class
	p.blocks = resized(p.blocks, len(c.op))
	form = c.form
	if s.exact != nil {
		form = p.numbers(len(c.op))
		p.sizes = resized(p.sizes, len(c.op))
		for i, size := range s.exact.sizes {
			p.sizes[i] = p.reduce.bytes(uint64(size), c.columns[i])
		}
	} else {
		p.sizes = resized(p.sizes, len(c.forms))
		if p.values, err = p.vars.values(s.shape, p.values); err != nil {
			return nil, err
		}
		for i := range c.forms {
			p.sizes[i] = p.reduce.bytes(c.forms[i].size(s.shape, p.values), c.forms[i].columns)
		}
	}
	p.findDeaths(s)
	if p.watch != nil {
		p.watch.begin(s)
	}
	p.withoutCopies(s)
	return form, nil
}

func resized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// numbers gives 0, 1, 2, …
func (p *player) numbers(n int) []int32 {
	for len(p.identity) < n {
		p.identity = append(p.identity, int32(len(p.identity)))
	}
	return p.identity[:n]
}

// findDeaths lists what of earlier segments dies in a segment: as the trace shows it where it shows these classes
// together, else at the segment's end.
func (p *player) findDeaths(s planned) {
	p.deaths = p.deaths[:0]
	p.forget(s.place.window - farthest)
	for i := range s.class.carries {
		p.carried(s, &s.class.carries[i])
	}
	for _, t := range p.reach(s) {
		for _, f := range t.class.fatesIn(t.place.role) {
			if f.meets(t.place, s.place) {
				p.take(t, f.slots, int32(len(s.class.events)))
			}
		}
	}
	byPosition := func(a, b death) int { return cmp.Compare(a.pos, b.pos) }
	if !slices.IsSortedFunc(p.deaths, byPosition) {
		slices.SortStableFunc(p.deaths, byPosition)
	}
}

// forget lets go of segments of windows before one. What they left and should have died by now dies.
func (p *player) forget(window int) {
	n := 0
	for ; n < len(p.history) && p.history[n].place.window < window; n++ {
		t := p.history[n]
		p.takeFated(t)
		p.spare = append(p.spare, t)
	}
	p.history = slices.Delete(p.history, 0, n)
}

// carried lists the deaths of one group, where the run has a segment of its class in its place.
func (p *player) carried(s planned, c *carry) {
	end := func(t *played) {
		if t == nil || t.class != c.from {
			return
		}
		for _, d := range c.deaths {
			p.takeSlot(t, d.slot, d.pos)
		}
	}
	switch {
	case c.link.role == roleLoad && c.link.back == 0:
		end(p.load)
	case c.link.back > 0:
		if at := len(p.history) - c.link.back; at >= 0 {
			end(p.history[at])
		}
	default:
		for i := len(p.history) - 1; i >= 0 && p.history[i].place.window >= s.place.window-c.link.windows; i-- {
			if t := p.history[i]; t.place.window == s.place.window-c.link.windows && t.place.role == c.link.role {
				end(t)
			}
		}
	}
}

// reach is where to look for storages whose fate is a segment. Windows of thousands of micro-batches are not searched
// again for each of them.
func (p *player) reach(s planned) []*played {
	if s.place.role.kind() == KindAccumulate && s.place.order > 1 {
		return p.history[max(len(p.history)-farthestMicro, 0):]
	}
	return p.history
}

// takeFated lets all die now that would die in some later segment.
func (p *player) takeFated(t *played) {
	for _, f := range t.class.fatesIn(t.place.role) {
		p.take(t, f.slots, 0)
	}
}

func (p *player) take(t *played, slots []int32, pos int32) {
	for _, slot := range slots {
		p.takeSlot(t, slot, pos)
	}
}

func (p *player) takeSlot(t *played, slot, pos int32) {
	k := &t.slots[slot]
	if k.alive {
		k.alive = false
		p.deaths = append(p.deaths, death{pos, *k})
	}
}

func nextOf(deaths []death) int {
	if len(deaths) == 0 {
		return math.MaxInt
	}
	return int(deaths[0].pos)
}

// bury frees what dies before an event, and gives the rest.
func (p *player) bury(deaths []death, at int) []death {
	for len(deaths) > 0 && int(deaths[0].pos) <= at {
		_ = p.alloc.Free(deaths[0].kept.block)
		if p.watch != nil {
			p.watch.allocated -= deaths[0].kept.held
		}
		deaths = deaths[1:]
	}
	return deaths
}

// keep writes down what outlives a segment that was played to its end.
func (p *player) keep(s planned) {
	t := &played{}
	if n := len(p.spare); n > 0 {
		t, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	c := s.class
	t.class, t.place, t.slots = c.named(), s.place, t.slots[:0]
	for _, birth := range c.outlive {
		k := kept{block: p.blocks[birth], module: c.module[birth], part: p.parts[birth], alive: true}
		if p.watch != nil {
			k.held = p.watch.held[birth]
		}
		t.slots = append(t.slots, k)
	}
	if s.place.role == roleLoad {
		p.load = t
		return
	}
	p.history = append(p.history, t)
}

// named is the class whose slots others name: a first window that was put together counts as a later one.
func (c *class) named() *class {
	if c.graftedOn != nil {
		return c.graftedOn
	}
	return c
}

// fatesIn gives the fates of a role. A micro-batch between the first and the last may not have been traced.
func (c *class) fatesIn(r role) []fate {
	if len(c.fates[r]) == 0 && r == roleMiddle {
		r = roleLast
	}
	return c.fates[r]
}

// meets tells whether a fate is a segment.
func (f *fate) meets(from, here place) bool {
	if f.kind != here.role.kind() {
		return false
	}
	if f.back > 0 {
		return from.window == here.window && here.order-from.order == f.back
	}
	return here.window-from.window == f.windows
}
