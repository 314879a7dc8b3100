package replay

import (
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
)

// placeAhead puts the inputs of the window's other micro-batches on the device: the Trainer draws
// all batches of a step before it computes with the first (transformers.Trainer.get_batch_samples),
// and only then releases those of the step before.
func (p *Player) placeAhead(s Segment) error {
	for _, a := range s.Ahead {
		shapePoint, err := p.variables.At(a.Shape)
		if err != nil {
			return err
		}
		for i := range a.Template.Inputs {
			f := &a.Template.Formulas[a.Template.Storages[i].Formula]
			// which counts as the same input of the segment being replayed
			block, err := p.allocate(&s, i, p.reduction.Bytes(f.Size(shapePoint), f.Unit))
			if err != nil {
				return err
			}
			p.ahead = append(p.ahead, p.holding(&s, i, block))
		}
	}
	return nil
}

// takePlaced returns a micro-batch the inputs that were placed ahead, and the number of events that
// this spares.
func (p *Player) takePlaced(s Segment) int {
	if s.Position.Order == 0 || len(p.ahead) == 0 || int(s.Template.Inputs) > len(p.ahead) {
		return 0
	}
	n := int(s.Template.Inputs)
	for i, input := range p.ahead[:n] {
		p.blocks[i] = input.block
	}
	p.ahead = p.ahead[n:]
	return n
}

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
