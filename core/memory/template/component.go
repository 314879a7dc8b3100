package template

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Components of memory that no tag names.
const (
	temporaries   = iota // what the rest is
	activations          // allocated in the forward pass, alive in the backward pass
	ownComponents        // how many these are
	untagged      = 255
)

const inputs = "inputs" // the component of a micro-batch's own tensors

// MaxComponents bounds the components of a trace.
const MaxComponents = trace.MaxTags + ownComponents

// tagComponents names the component of a tag; a tag that is not here is a component of its own
// name.
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
		name := tag
		if component, ok := tagComponents[tag]; ok {
			name = component
		}
		i := slices.Index(names, name)
		if i < 0 {
			i = len(names)
			names = append(names, name)
		}
		ofTag = append(ofTag, uint8(i))
	}
	return names, ofTag
}

// setComponents decides what each storage counts as.
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

// phaseEnd is the event with which the next phase begins.
func (t *Template) phaseEnd(phase int, allocated []int32) int32 {
	if phase+1 == len(t.Phases) || int(t.Phases[phase+1].Storage) == len(allocated) {
		return int32(len(t.Events))
	}
	return allocated[t.Phases[phase+1].Storage]
}

// countInputs counts the storages that are placed before anything else happens.
func (t *Template) countInputs(component int) {
	for i, e := range t.Events {
		if e != int32(i) || int(t.Storages[e].Component) != component {
			return
		}
		t.Inputs++
	}
}
