package memory

import "slices"

// Components of memory that no tag names.
const (
	partTemporaries = iota // what the rest is
	partActivations        // born in the forward pass, alive in the backward pass
	partsOwn
	partUntagged = 255
)

// tagComponents names the component of a tag; a tag that is not here is a component of its own name.
var tagComponents = map[string]string{
	"parameter": "parameters", "buffer": "buffers", "gradient": "gradients", "input": "inputs", "workspace": "workspaces", "output": "outputs",
}

// maxParts bounds the components of a trace.
const maxParts = maxTags + partsOwn

// components gives the names of all components of a trace, and the component of each tag.
func components(tags []string) (names []string, ofTag []uint8) {
	names = []string{partTemporaries: "temporaries", partActivations: "activations"}
	for _, tag := range tags {
		if tag == "" {
			ofTag = append(ofTag, partUntagged)
			continue
		}
		name := tag
		if known, ok := tagComponents[tag]; ok {
			name = known
		}
		at := slices.Index(names, name)
		if at < 0 {
			at = len(names)
			names = append(names, name)
		}
		ofTag = append(ofTag, uint8(at))
	}
	return names, ofTag
}
