package template

import "slices"

// Pad is a padded copy that is not made where the length is a multiple: then its source is kept
// instead.
type Pad struct {
	Multiple             int64
	Copied, Length, Copy int32 // storages

	CopiedFreed      int32 // event; -1: it survives
	allocated, freed int32 // events of the copy, likewise
}

// placePads finds the events of padded copies. A copy that outlives the segment, while its source
// does not, stays one.
func (t *Template) placePads() {
	if len(t.Pads) == 0 {
		return
	}
	allocated, freed := t.lifetimes()
	for i := range t.Pads {
		p := &t.Pads[i]
		p.allocated, p.freed, p.CopiedFreed = allocated[p.Copy], freed[p.Copy], freed[p.Copied]
	}
	t.Pads = slices.DeleteFunc(t.Pads, func(p Pad) bool {
		return p.freed < 0 && p.CopiedFreed >= 0
	})
}

// LeaveOut takes the copy out of a segment's events: its allocation becomes nothing, and its source
// is freed when the last of both would have been. The events keep their places. freed is the event
// that frees the source so far, -1 for none; it returns the one that does now.
func (p *Pad) LeaveOut(events []int32, freed int32) int32 {
	events[p.allocated] = ^p.Copy // frees nothing
	if freed >= 0 && p.freed > freed {
		events[freed], events[p.freed] = ^p.Copy, ^p.Copied
		return p.freed
	}
	return freed
}
