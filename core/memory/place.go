package memory

// role is the part of a segment in the loop. The accumulated micro-batches of a window share their structure, but not when
// their storages die: the last one's loss lives on into the next window, for instance.
type role uint8

const (
	roleLoad role = iota
	roleMicro
	roleMiddle // accumulate, with another one after it
	roleLast   // accumulate, the window's last
	roleStep
	roleIteration
	roleEvaluate
	roleGenerate
)

var roleKinds = [...]string{KindLoad, KindMicro, KindAccumulate, KindAccumulate, KindStep, KindIteration, KindEvaluate, KindGenerate}

func (r role) kind() string { return roleKinds[r] }

// place is where a segment stands in a run. A window is what one optimizer step takes; every evaluation is one of its own,
// and loading is window -1.
type place struct {
	window int
	order  int // within the window
	role   role
}

// link says where a storage was born, seen from the segment in which it dies, in words that hold for windows of any
// number of micro-batches.
type link struct {
	windows int  // back
	role    role // in that window
	back    int  // segments back, instead of the role, from one accumulated micro-batch to an earlier one of its window
}

// linkTo gives the link from a segment to an earlier one, or to itself.
func (p place) linkTo(earlier place) link {
	if earlier.role == roleLoad {
		return link{role: roleLoad}
	}
	if p.role.kind() == KindAccumulate && p.window == earlier.window {
		return link{back: p.order - earlier.order}
	}
	return link{windows: p.window - earlier.window, role: earlier.role}
}

// places finds the place of every segment of a trace.
func places(segments []Segment) []place {
	all := make([]place, len(segments))
	window, order := -1, 0
	for i := range segments {
		kind := segments[i].Kind
		switch kind {
		case KindLoad:
		case KindAccumulate, KindStep:
			order++
		default:
			window, order = window+1, 0
		}
		all[i] = place{window: window, order: order, role: roleOf(kind)}
		if all[i].role == roleLast && all[i-1].role == roleLast {
			all[i-1].role = roleMiddle
		}
	}
	return all
}

func roleOf(kind string) role {
	if kind == KindAccumulate {
		return roleLast // until another one follows
	}
	for r, name := range roleKinds {
		if name == kind {
			return role(r)
		}
	}
	return roleLoad
}
