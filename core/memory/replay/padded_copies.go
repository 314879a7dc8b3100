package replay

import (
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

// source is what a padded copy that is not made would have copied.
type source struct {
	freed     int32 // the event that frees it
	component uint8 // the copy's, in whose place it is kept
}

// leaveOutCopies finds the events of a segment: those of its template, without the padded copies
// that are not made where rows fill up.
func (p *Player) leaveOutCopies(t *template.Template, value func(storage int32) int64) {
	p.events = t.Events
	clear(p.sources)
	for i := range t.Pads {
		pad := &t.Pads[i]
		if value(pad.Length)%pad.Multiple != 0 {
			continue
		}
		if len(p.sources) == 0 {
			p.changed = append(p.changed[:0], t.Events...)
			p.events = p.changed
		}
		freed := pad.CopiedFreed
		if src, moved := p.sources[pad.Copied]; moved {
			freed = src.freed
		}
		freed = pad.LeaveOut(p.events, freed)
		p.sources[pad.Copied] = source{freed, t.Storages[pad.Copy].Component}
		p.blocks[pad.Copy] = allocator.Block{}
		if p.Observer != nil {
			p.Observer.blockBytes[pad.Copy] = 0
		}
	}
}

// component is what a storage counts as.
func (p *Player) component(s *Segment, storage int32) uint8 {
	if len(p.sources) > 0 {
		if source, ok := p.sources[storage]; ok {
			return source.component
		}
	}
	return s.Template.Storages[storage].Component
}
