// Package replay runs segments of a trace, at other shapes or as recorded, through a simulation of
// PyTorch's allocator.
package replay

import (
	"errors"
	"math"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Segment is one to replay.
type Segment struct {
	Template *template.Template
	Position template.Position
	Shape    trace.Shape
	Recorded []int64   // sizes instead of the formulas'; nil for those of the shape
	Ahead    []Segment // the window's micro-batches whose inputs are placed with this one's
}

// Events of some segments.
func Events(segments []Segment) int {
	n := 0
	for _, s := range segments {
		n += len(s.Template.Events)
	}
	return n
}

// Player replays segments through one allocator.
type Player struct {
	Allocator *allocator.Allocator
	Observer  *Observer // nil when only the allocator's own figures are wanted

	// Allocating is called before each allocation, with what the storage counts as; nil for none.
	Allocating func(s Segment, storage int32, component uint8)

	variables formula.Variables
	reduction reduction.Rules
	load      []*played  // the loading segment; none before it was played
	windows   []*played  // segments of this window and the two before
	ahead     []survivor // inputs of the window's later micro-batches, in their order

	// Of the segment being replayed.
	events    []int32
	sizes     []uint64 // bytes, by storage
	blocks    []allocator.Block
	inherited []inheritedFree
	sources   map[int32]source // of padded copies that are not made
	changed   []int32          // the template's events without those copies
	byFormula []uint64
}

// Failure is an allocation that found no room.
type Failure struct {
	Segment Segment
	Storage int32
	Cause   *allocator.OutOfMemory
	event   int
}

// New is a player with an allocator of its own.
func New(variables formula.Variables, settings allocator.Settings, gpu reduction.GPU) *Player {
	return &Player{Allocator: allocator.New(settings), variables: variables, reduction: gpu.Rules(),
		sources: map[int32]source{}}
}

// PlayAll replays segments until one runs out of memory.
func (p *Player) PlayAll(segments []Segment) (*Failure, error) {
	for _, s := range segments {
		if full, err := p.Play(s); full != nil || err != nil {
			return full, err
		}
	}
	return nil, nil
}

// Play replays one segment. A failure is the device running out of memory; the segment then ends
// there.
func (p *Player) Play(s Segment) (*Failure, error) {
	if err := p.prepare(s); err != nil {
		return nil, err
	}
	pending, next := p.inherited, nextEvent(p.inherited)
	spared, emptied := p.takePlaced(s), s.Template.FirstOf(trace.PhaseLoadAgain)
	for i, e := range p.events {
		if i == int(s.Template.Inputs) && len(s.Ahead) > 0 {
			if err := p.placeAhead(s); err != nil {
				return p.failed(s, 0, i, err)
			}
		}
		if i >= next {
			pending = p.freeUntil(pending, i)
			next = nextEvent(pending)
		}
		if i < spared {
			continue
		}
		if e >= 0 && e == emptied {
			p.Allocator.EmptyCache()
		}
		if err := p.playEvent(&s, e); err != nil {
			return p.failed(s, e, i, err)
		}
	}
	p.freeUntil(pending, math.MaxInt)
	p.keepSurvivors(s)
	return nil, nil
}

func (p *Player) playEvent(s *Segment, e int32) (err error) {
	if e >= 0 {
		p.blocks[e], err = p.allocate(s, e, p.sizes[e])
		return err
	}
	if p.Observer == nil { // nobody asks what the block held
		_ = p.Allocator.Free(p.blocks[^e]) // the trace was checked: it is allocated
		return nil
	}
	p.free(p.holding(s, ^e, p.blocks[^e]))
	p.Observer.sample()
	return nil
}

// allocate finds room for a storage of a segment.
func (p *Player) allocate(s *Segment, storage int32, bytes uint64) (allocator.Block, error) {
	if p.Allocating != nil {
		p.Allocating(*s, storage, p.component(s, storage))
	}
	block, err := p.Allocator.Malloc(bytes)
	if err == nil && p.Observer != nil {
		after := p.Allocator.Stats()
		p.Observer.allocate(storage, p.component(s, storage), after.Allocated, after.Reserved)
		p.Observer.sample()
	}
	return block, err
}

func (p *Player) free(s survivor) {
	_ = p.Allocator.Free(s.block) // the trace was checked: it is allocated
	if p.Observer != nil {
		p.Observer.free(s.module, s.component, p.Allocator.Stats().Allocated)
	}
}

// holding is the block of a storage of a segment, and what it counts as.
func (p *Player) holding(s *Segment, storage int32, block allocator.Block) survivor {
	return survivor{block, s.Template.Storages[storage].Module, p.component(s, storage), true}
}

func (p *Player) failed(s Segment, storage int32, event int, err error) (*Failure, error) {
	var full *allocator.OutOfMemory
	if !errors.As(err, &full) {
		return nil, err
	}
	return &Failure{s, storage, full, event}, nil
}

// prepare computes the sizes of a segment, and finds what it frees of earlier ones.
func (p *Player) prepare(s Segment) error {
	t := s.Template
	p.blocks, p.sizes = resized(p.blocks, len(t.Storages)), resized(p.sizes, len(t.Storages))
	value := func(storage int32) int64 { return s.Recorded[storage] }
	if s.Recorded == nil {
		shapePoint, err := p.variables.At(s.Shape)
		if err != nil {
			return err
		}
		value = func(storage int32) int64 {
			return int64(t.Formulas[t.Storages[storage].Formula].Size(shapePoint))
		}
		p.computeSizes(t, shapePoint)
	} else {
		for i, size := range s.Recorded {
			p.sizes[i] = p.reduction.Bytes(uint64(size), t.Storages[i].Unit)
		}
	}
	p.findInherited(s)
	if p.Observer != nil {
		p.Observer.begin(s)
	}
	p.leaveOutCopies(t, value)
	return nil
}

func (p *Player) computeSizes(t *template.Template, shapePoint formula.Point) {
	p.byFormula = resized(p.byFormula, len(t.Formulas))
	for i := range t.Formulas {
		f := &t.Formulas[i]
		p.byFormula[i] = p.reduction.Bytes(f.Size(shapePoint), f.Unit)
	}
	for i := range p.sizes {
		p.sizes[i] = p.byFormula[t.Storages[i].Formula]
	}
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
