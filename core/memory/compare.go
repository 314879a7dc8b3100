package memory

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

// CompareRequest holds what a training held at a moment against the same moment of the run that
// Simulate plays for the request.
type CompareRequest struct {
	Request
	CompareArgs
}

// CompareArgs are the moment of a training, and what it held then.
type CompareArgs struct {
	// forward, backward or optimizer; "" where that is not known
	Phase string `json:"phase"`
	At    string `json:"at"` // the module at work; "" where that is not known
	// bytes that were not there, as PyTorch's error names them; 0 where that is not known
	Wanted uint64         `json:"wanted"`
	Held   []peak.Holding `json:"held"` // at most 1 000 000
	Rows   int            `json:"rows"` // at most, up to 10 000; 0 or absent: 20
}

// Comparison is what a training held, and what was predicted.
type Comparison struct {
	Held      uint64     `json:"held"`      // bytes in all
	Predicted *uint64    `json:"predicted"` // likewise; null without a prediction
	Moment    *Moment    `json:"moment"`    // of the predicted run; null without a prediction
	Rows      []peak.Row `json:"rows"`      // largest differences first
}

// Moment is the moment of a predicted run that a real one is compared with: an allocation that is
// about to be made.
type Moment struct {
	peak.Place
	Step int `json:"step"` // optimizer step or evaluation batch, from 1
}

const (
	maxHoldings = 1_000_000
	defaultRows = 20
)

// Unpredicted is the comparison of a training without a prediction. Errors: InvalidArgument.
func (a CompareArgs) Unpredicted() (Comparison, error) {
	if err := a.inBounds(); err != nil {
		return Comparison{}, err
	}
	return Comparison{Held: peak.Sum(a.Held), Rows: peak.Compare(a.Held, nil, a.rows())}, nil
}

// Compare replays a few steps and compares the moment before the allocation that is most like the
// training's: in its phase and its module; with as much in gradients and optimizer state, which
// show how far a step is; among those one of the same size, and among those the one with most
// allocated.
func (m *Model) Compare(r CompareRequest) (Comparison, error) {
	if err := r.inBounds(); err != nil {
		return Comparison{}, err
	}
	p, plan, err := m.player(r.Request)
	if err != nil {
		return Comparison{}, err
	}
	c := newCounterpart(m, r.CompareArgs, p.Allocator)
	p.Allocating, p.Allocator.Watch = c.allocating, c.changed
	if _, err := p.PlayAll(plan); err != nil {
		return Comparison{}, err
	}
	if c.moment == nil {
		return r.Unpredicted()
	}
	sum := peak.Sum(c.best)
	return Comparison{peak.Sum(r.Held), &sum, c.moment, peak.Compare(r.Held, c.best, r.rows())}, nil
}

func (a CompareArgs) rows() int { return cmp.Or(a.Rows, defaultRows) }

func (a CompareArgs) inBounds() error {
	return cmp.Or(fault.InRange("rows", a.Rows, 0, maxModules),
		fault.InRange("the number of entries in held", len(a.Held), 0, maxHoldings))
}

// counterpart follows a replayed run to the moment that is most like another run's.
type counterpart struct {
	CompareArgs
	model     *Model
	allocator *allocator.Allocator
	aim       [2]uint64 // the other run's gradients and optimizer state

	holdings numbered[peak.Holding] // known without their bytes
	done     [2]uint64              // of that, gradients and optimizer state
	sum      uint64                 // in all
	current  int32                  // number of the holding that is allocated next
	next     *Moment                // that allocation; nil where it cannot be the other run's
	live     map[uint64]int32       // the holding of each block, by address

	moment *Moment // the best so far, with what is held
	rank   [4]uint64
	best   []peak.Holding
}

func newCounterpart(m *Model, a CompareArgs, running *allocator.Allocator) *counterpart {
	c := &counterpart{CompareArgs: a, model: m, allocator: running, live: map[uint64]int32{}}
	for _, h := range a.Held {
		if i := progress(h); i >= 0 {
			c.aim[i] += h.Bytes
		}
	}
	return c
}

// progress is the index of a holding among those that show how far a step is; -1 for others.
func progress(h peak.Holding) int {
	return slices.Index([]string{"gradients", "optimizer"}, h.Component)
}

func (c *counterpart) allocating(s replay.Segment, storage int32, component uint8) {
	place := c.model.place(s.Template, storage)
	c.next = nil
	if s.Position.Role != template.Load && (c.Phase == "" || c.Phase == place.Phase) {
		c.next = &Moment{place, stepOf(s.Position)}
	}
	c.current = c.holdings.of(peak.Holding{Component: c.model.templates.Components[component],
		Module: place.Module})
}

// offer takes the moment before an allocation if it is more like the other run's than the best so
// far.
func (c *counterpart) offer(moment *Moment, bytes uint64) {
	rank := [4]uint64{0, apart(c.done[0], c.aim[0]) + apart(c.done[1], c.aim[1]), 0, ^c.sum}
	if c.At != "" && moment.Module != c.At {
		rank[0] = 1
	}
	if c.Wanted > 0 && c.allocator.Wanted(bytes) != c.Wanted {
		rank[2] = 1
	}
	if c.moment == nil || slices.Compare(rank[:], c.rank[:]) < 0 {
		c.moment, c.rank, c.best = moment, rank, append(c.best[:0], c.holdings.values...)
	}
}

func apart(a, b uint64) uint64 { return max(a, b) - min(a, b) }

func (c *counterpart) changed(change allocator.Change) {
	grown := c.allocator.Stats().Allocated - c.sum // of a free it wraps around
	switch change.Action {
	case allocator.Allocated:
		if c.next != nil {
			c.offer(c.next, change.Bytes)
		}
		c.live[change.Address] = c.current
		c.add(c.current, grown)
	case allocator.Freed:
		c.add(c.live[change.Address], grown)
		delete(c.live, change.Address)
	case allocator.SegmentAllocated, allocator.SegmentFreed, allocator.SegmentMapped,
		allocator.SegmentUnmapped:
	}
}

// add counts bytes of a holding; what wraps around is taken away.
func (c *counterpart) add(holding int32, bytes uint64) {
	h := &c.holdings.values[holding]
	h.Bytes += bytes
	c.sum += bytes
	if i := progress(*h); i >= 0 {
		c.done[i] += bytes
	}
}
