package memory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
)

// An attention kernel that wants rows of a multiple of 8 elements copies a mask whose rows are not; the copy is kept for
// the backward pass instead of the mask. Where the rows fill up, the mask itself is kept. The trace shows the copy at every
// length, preceded by the count of a row's elements, so that segments of all lengths have one structure, and the player
// does without it where there is none.

const (
	lengthOp = "length" // the operation of a birth that counts elements and holds nothing
	padOp    = "pad:"   // heads the operation of such a copy: "pad:<multiple>:<births back to what is copied>"

	countOnly   = -1 // in place of columns: no bytes
	maxMultiple = 1 << 20
)

// rule is what an operation's name says beyond a name.
type rule struct {
	columns  int64 // of a column sum, or countOnly; 0: the birth's value is bytes
	multiple int64 // of a padded copy; 0 for none
	back     int32 // births from the copy back to its source
}

// parseRule reads an operation's name.
func parseRule(op string) (rule, error) {
	if op == lengthOp {
		return rule{columns: countOnly}, nil
	}
	text, found := strings.CutPrefix(op, padOp)
	if !found {
		columns, err := parseCounted(op)
		return rule{columns: columns}, err
	}
	first, second, _ := strings.Cut(text, ":")
	multiple, err := strconv.ParseUint(first, 10, 32)
	back, err2 := strconv.ParseUint(second, 10, 31)
	if err != nil || err2 != nil || multiple < 1 || multiple > maxMultiple || back < 2 {
		return rule{}, fmt.Errorf("operation %q: a padded copy is pad:<multiple, 1 to %d>:<births back, from 2>", fault.Shorten(op), maxMultiple)
	}
	return rule{multiple: int64(multiple), back: int32(back)}, nil
}

// rulesOf gives the rule of each operation of a checked trace.
func rulesOf(ops []string) []rule {
	rules := make([]rule, len(ops))
	for i, op := range ops {
		rules[i], _ = parseRule(op)
	}
	return rules
}

// checkPads wants a count before each padded copy, and a source in the same segment.
func (s *Segment) checkPads(rules []rule) error {
	for i, op := range s.Op {
		back := int(rules[op].back)
		if back > 0 && (back > i || rules[s.Op[i-1]].columns != countOnly) {
			return fmt.Errorf("birth %d: a padded copy without its length before it, or without what it copies", i)
		}
	}
	return nil
}

// pad is a copy in a class that is not there where the length is a multiple.
type pad struct {
	multiple             int64
	copied, length, copy int32 // births
	copiedDies, copyDies int32 // events; -1: they outlive the segment
	born                 int32 // the event of the copy's birth
}

// findPads lists a class's padded copies.
func (c *class) findPads(rules []rule) {
	for birth, op := range c.op {
		if r, birth := rules[op], int32(birth); r.multiple > 0 {
			c.pads = append(c.pads, pad{multiple: r.multiple, copied: birth - r.back, length: birth - 1, copy: birth})
		}
	}
	c.placePads()
}

// placePads finds the events of padded copies. A copy that outlives the segment, while its source does not, stays one.
func (c *class) placePads() {
	if len(c.pads) == 0 {
		return
	}
	born, died := c.lives()
	for i := range c.pads {
		p := &c.pads[i]
		p.born, p.copyDies, p.copiedDies = born[p.copy], died[p.copy], died[p.copied]
	}
	c.pads = slices.DeleteFunc(c.pads, func(p pad) bool { return p.copyDies < 0 && p.copiedDies >= 0 })
}

// leaveOut takes a copy out of a segment's events: its birth is nothing, and what it would have copied dies when the last
// of both does. The events keep their places.
func (p *pad) leaveOut(events []int32, ends map[int32]int32) {
	events[p.born] = ^p.copy // frees nothing
	end, moved := ends[p.copied]
	if !moved {
		end = p.copiedDies
	}
	if end >= 0 && p.copyDies > end {
		events[end], events[p.copyDies] = ^p.copy, ^p.copied
		end = p.copyDies
	}
	ends[p.copied] = end
}

// withoutCopies finds the events of a segment whose sizes are known: those of its class, without the padded copies that
// are not made at this length.
func (p *player) withoutCopies(s planned) {
	p.events, p.parts = s.class.events, s.class.part
	var ends map[int32]int32 // of copied births: the event with which they die
	for i := range s.class.pads {
		c := &s.class.pads[i]
		if p.value(s, c.length)%c.multiple != 0 {
			continue
		}
		if ends == nil {
			ends = map[int32]int32{}
			p.changed = append(p.changed[:0], s.class.events...)
			p.otherParts = append(p.otherParts[:0], s.class.part...)
			p.events, p.parts = p.changed, p.otherParts
		}
		c.leaveOut(p.events, ends)
		p.parts[c.copied] = p.parts[c.copy]
		p.blocks[c.copy] = allocator.Block{}
		if p.watch != nil {
			p.watch.held[c.copy] = 0
		}
	}
}

// value is what a birth counts.
func (p *player) value(s planned, birth int32) int64 {
	if s.exact != nil {
		return s.exact.sizes[birth]
	}
	return int64(s.class.forms[s.class.form[birth]].size(s.shape, p.values))
}
