// Package template finds the structure that segments of a trace share, and a formula for the size
// of each storage in it. With these a segment of any shape can be replayed.
package template

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Template is the structure that several segments share: they allocate storages by the same
// operations and free them at the same events. They differ in the sizes of the storages, and in
// what they free of earlier segments.
type Template struct {
	Kind     string
	Events   []int32 // n >= 0: storage n of the segment is allocated; n < 0: storage ^n is freed
	Storages []Storage
	Phases   []Phase
	Pads     []Pad
	// how many of the first storages are a micro-batch's inputs, placed before anything else
	// happens
	Inputs    int32
	Survivors []int32           // the storages that no event frees
	Inherited []Inherited       // frees of earlier segments' storages
	Formulas  []formula.Formula // those of the storages' sizes, each once

	Recordings []Recording

	calls     func() calls // fitted at the first call: only predictions of time need them
	structure *canonical
	expiries  [roles][]Expiry
	first     firstWindow
	base      *Template // of a composed template, see Base
}

// Storage is one of a segment's storages.
type Storage struct {
	Op, Module, Tag int32 // indices of the trace's lists of names
	Formula         int32 // index in Template.Formulas
	Survivor        int32 // index in Template.Survivors; -1: the segment frees it
	Component       uint8 // index in Set.Components
	Unit            trace.Unit
}

// Phase is a part of a segment, such as "forward". It begins with the allocation of Storage.
type Phase struct {
	Storage int32
	Name    string
}

// Recording is a segment of the trace that has the template's structure.
type Recording struct {
	Segment  int
	Position Position
	Shape    trace.Shape
	HasShape bool
	Sizes    []int64 // of its storages, in their units
}

// newTemplate makes the template of a segment. ofTag has the component of each tag.
func newTemplate(c *canonical, ofTag []uint8, ops []trace.Op) *Template {
	t := &Template{Kind: c.segment.Kind, Events: c.events, Phases: c.phases,
		Storages: make([]Storage, len(c.sizes)), structure: c}
	allocated, freed := t.lifetimes()
	for i := range t.Storages {
		op, survivor := c.segment.Op[i], int32(-1)
		if freed[i] < 0 {
			survivor = int32(len(t.Survivors))
			t.Survivors = append(t.Survivors, int32(i))
		}
		t.Storages[i] = Storage{Op: op, Module: c.segment.Module[i], Tag: c.segment.Tag[i],
			Survivor: survivor, Unit: ops[op].Unit}
		if pad := ops[op].Pad; pad.Multiple > 0 {
			t.Pads = append(t.Pads, Pad{Multiple: pad.Multiple, Copied: int32(i) - pad.Back,
				Length: int32(i) - 1, Copy: int32(i)})
		}
	}
	t.placePads()
	t.setComponents(ofTag, allocated, freed)
	return t
}

// lifetimes returns the events that allocate and that free each storage; -1 where none frees it.
func (t *Template) lifetimes() (allocated, freed []int32) {
	allocated, freed = make([]int32, len(t.Storages)), make([]int32, len(t.Storages))
	for i := range freed {
		freed[i] = -1
	}
	for i, e := range t.Events {
		if e >= 0 {
			allocated[e] = int32(i)
		} else {
			freed[^e] = int32(i)
		}
	}
	return allocated, freed
}

// PhaseOf names the phase in which a storage is allocated.
func (t *Template) PhaseOf(storage int32) string {
	name := t.Phases[0].Name
	for _, p := range t.Phases {
		if p.Storage <= storage {
			name = p.Name
		}
	}
	return name
}

// FirstOf returns the storage with which a phase begins, -1 where the template has no such phase.
func (t *Template) FirstOf(phase string) int32 {
	for _, p := range t.Phases {
		if p.Name == phase {
			return p.Storage
		}
	}
	return -1
}

// Base returns the template that others refer to for the survivors of this one: for a composed
// template, see compose, the later windows' template that it was made from; else itself.
func (t *Template) Base() *Template {
	if t.base != nil {
		return t.base
	}
	return t
}

// HasShapes reports whether every recorded segment has a shape.
func (t *Template) HasShapes() bool { return haveShapes(t.Recordings) }

func haveShapes(recordings []Recording) bool {
	return !slices.ContainsFunc(recordings, func(r Recording) bool { return !r.HasShape })
}

// shapesOf returns the distinct shapes of recordings, and for each recording the index of its
// shape.
func shapesOf(recordings []Recording) (shapes []trace.Shape, shapeOf []int) {
	for _, r := range recordings {
		i := slices.Index(shapes, r.Shape)
		if i < 0 {
			i = len(shapes)
			shapes = append(shapes, r.Shape)
		}
		shapeOf = append(shapeOf, i)
	}
	return shapes, shapeOf
}

// Components of memory that no tag names.
const (
	temporaries   = iota // everything else
	activations          // allocated in the forward pass, alive in the backward pass
	ownComponents        // the number of these two
	untagged      = 255  // in the components of tags: the empty tag, which names none
)

const inputs = "inputs" // the component of a micro-batch's own tensors

// MaxComponents bounds the components of a trace.
const MaxComponents = trace.MaxTags + ownComponents

// tagComponents names the component of a tag; a tag that is missing here has a component of the
// same name.
var tagComponents = map[string]string{
	"parameter": "parameters", "buffer": "buffers", "gradient": "gradients", "input": inputs,
	"workspace": "workspaces", "output": "outputs",
}

// components returns the names of all components of a trace, and the component of each tag.
func components(tags []string) (names []string, ofTag []uint8) {
	names = []string{temporaries: "temporaries", activations: "activations"}
	for _, tag := range tags {
		if tag == "" {
			ofTag = append(ofTag, untagged)
			continue
		}
		name := cmp.Or(tagComponents[tag], tag)
		i := slices.Index(names, name)
		if i < 0 {
			i = len(names)
			names = append(names, name)
		}
		ofTag = append(ofTag, uint8(i))
	}
	return names, ofTag
}

// setComponents decides which component each storage belongs to: that of its tag, else activations
// or temporaries.
func (t *Template) setComponents(ofTag []uint8, allocated, freed []int32) {
	phase := 0
	for i := range t.Storages {
		s := &t.Storages[i]
		for phase+1 < len(t.Phases) && int(t.Phases[phase+1].Storage) <= i {
			phase++
		}
		if s.Component = ofTag[s.Tag]; s.Component != untagged {
			continue
		}
		s.Component = temporaries
		if t.Phases[phase].Name == "forward" &&
			(freed[i] < 0 || freed[i] > t.phaseEnd(phase, allocated)) {
			s.Component = activations
		}
	}
}

// phaseEnd returns the event with which the next phase begins, after the last one the number of
// events.
func (t *Template) phaseEnd(phase int, allocated []int32) int32 {
	if phase+1 == len(t.Phases) || int(t.Phases[phase+1].Storage) == len(allocated) {
		return int32(len(t.Events))
	}
	return allocated[t.Phases[phase+1].Storage]
}

// countInputs counts the inputs, storages of a component, that are placed before anything else
// happens.
func (t *Template) countInputs(component int) {
	for i, e := range t.Events {
		if e != int32(i) || int(t.Storages[e].Component) != component {
			return
		}
		t.Inputs++
	}
}
