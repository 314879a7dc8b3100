package memory

import (
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Summary is what a trace holds.
type Summary struct {
	About map[string]any `json:"about"`
	// a layer normalizes over time, so that results depend on how much a clip is padded
	OverTime bool `json:"over_time"`
	// the traced segments that have a shape, in order
	Points []Point `json:"points"`
}

// Point is the shape of a traced segment.
type Point struct {
	Kind string `json:"kind"`
	trace.Shape
}

// Summary sums the trace up.
func (m *Model) Summary() Summary {
	s := Summary{About: m.trace.About, Points: []Point{},
		OverTime: slices.ContainsFunc(m.trace.Ops, normalizesOverTime)}
	for _, segment := range m.trace.Segments {
		if shape, ok := segment.Shape(); ok {
			s.Points = append(s.Points, Point{segment.Kind, shape})
		}
	}
	return s
}

// normalizesOverTime recognises the operation that takes its mean over all of the time axis,
// padding included, as in wav2vec2-base.
func normalizesOverTime(op string) bool { return strings.Contains(op, "native_group_norm.") }
