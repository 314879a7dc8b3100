package template

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Role is a segment's part in the loop. The accumulated micro-batches of a window share their
// structure, but not when their storages are freed: the last one's loss lives on into the next
// window, for instance.
type Role uint8

// Roles of segments.
const (
	Load Role = iota
	Micro
	Last   // accumulate, the window's last
	Middle // accumulate, with another one after it
	Step
	Iteration
	Evaluate
	Generate
	roles = iota
)

var kinds = [roles]string{trace.KindLoad, trace.KindMicro, trace.KindAccumulate,
	trace.KindAccumulate, trace.KindStep, trace.KindIteration,
	trace.KindEvaluate, trace.KindGenerate}

// Kind is that of the role's segments in a trace.
func (r Role) Kind() string { return kinds[r] }

// RoleOf is the role of a kind of segments; an accumulated micro-batch counts as the last until
// another one follows.
func RoleOf(kind string) Role {
	return Role(slices.Index(kinds[:], kind))
}

func (r Role) trains() bool {
	return r == Micro || r == Middle || r == Last || r == Step || r == Iteration
}

// Position is where a segment is in a run. A window is the micro-batches and the step of the
// optimizer that belong together; every evaluation is one of its own, and loading is window -1.
type Position struct {
	Window int
	Order  int // within the window
	Role   Role
}

func positions(segments []trace.Segment) []Position {
	all := make([]Position, len(segments))
	window, order := -1, 0
	for i := range segments {
		kind := segments[i].Kind
		switch kind {
		case trace.KindLoad:
		case trace.KindAccumulate, trace.KindStep:
			order++
		default:
			window, order = window+1, 0
		}
		all[i] = Position{Window: window, Order: order, Role: RoleOf(kind)}
		if all[i].Role == Last && all[i-1].Role == Last {
			all[i-1].Role = Middle
		}
	}
	return all
}

// Distance is from a segment back to an earlier one, in terms that hold for windows of any number
// of micro-batches.
type Distance struct {
	Windows int  // back
	Role    Role // in that window
	// back, instead of the role, from one accumulated micro-batch to an earlier one of its window
	Segments int
}

// A storage that is freed farther on than this stays for good: such a free is the end of the
// recording, or nothing that repeats.
const (
	MaxWindows  = 2
	MaxSegments = 3 // within a window
)

func (d Distance) tooFar() bool { return d.Windows > MaxWindows || d.Segments > MaxSegments }

// distanceTo returns the distance to an earlier position, or to the same.
func (p Position) distanceTo(earlier Position) Distance {
	if earlier.Role == Load {
		return Distance{Role: Load}
	}
	if p.Role.Kind() == trace.KindAccumulate && p.Window == earlier.Window {
		return Distance{Segments: p.Order - earlier.Order}
	}
	return Distance{Windows: p.Window - earlier.Window, Role: earlier.Role}
}
