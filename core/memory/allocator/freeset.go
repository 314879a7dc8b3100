package allocator

import "math/bits"

// octaves are the powers of two that sizes in units of minBlock lie between.
const octaves = 64 - 9

// freeSet holds the free blocks of a pool by size, then address: those of each octave in a list.
type freeSet [octaves + 1][]entry

type entry struct {
	size, address uint64
	block         int32
}

// cursor points at an entry, or behind all.
type cursor struct{ octave, index int }

// find points at the place in its octave of the first entry that is not before (size, address).
// There is no branch to predict in its loop.
func (s *freeSet) find(size, address uint64) cursor {
	octave, place := bits.Len64(size/minBlock), 0
	list := s[octave]
	for n := len(list); n > 0; {
		half := (n + 1) / 2
		e := &list[place+half-1]
		_, lower := bits.Sub64(e.address, address, 0)
		_, before := bits.Sub64(e.size, size, lower)
		place += half & -int(before)
		n -= half
	}
	return cursor{octave, place}
}

// from points at the first entry from a place on; false where there is none.
func (s *freeSet) from(c cursor) (cursor, bool) {
	for c.index == len(s[c.octave]) {
		if c = (cursor{octave: c.octave + 1}); c.octave > octaves {
			return c, false
		}
	}
	return c, true
}

// atLeast points at the first entry of that size or more.
func (s *freeSet) atLeast(size uint64) (cursor, bool) { return s.from(s.find(size, 0)) }

func (s *freeSet) next(c cursor) (cursor, bool) {
	c.index++
	return s.from(c)
}

func (s *freeSet) entry(c cursor) *entry { return &s[c.octave][c.index] }

func (s *freeSet) insert(e entry) {
	c := s.find(e.size, e.address)
	list := append(s[c.octave], entry{})
	copy(list[c.index+1:], list[c.index:])
	list[c.index], s[c.octave] = e, list
}

// remove takes out the entry of that size and address, which must be there.
func (s *freeSet) remove(size, address uint64) { s.removeAt(s.find(size, address)) }

func (s *freeSet) removeAt(c cursor) {
	list := s[c.octave]
	copy(list[c.index:], list[c.index+1:])
	s[c.octave] = list[:len(list)-1]
}

// replace puts an entry in place of another one.
func (s *freeSet) replace(c cursor, e entry) {
	s.removeAt(c)
	s.insert(e)
}

// largest is the last entry; nil in an empty set.
func (s *freeSet) largest() *entry {
	for i := octaves; i >= 0; i-- {
		if n := len(s[i]); n > 0 {
			return &s[i][n-1]
		}
	}
	return nil
}

// blocks lists the entries' blocks in order, for passes that change the set.
func (s *freeSet) blocks() (all []int32) {
	for _, list := range s {
		for _, e := range list {
			all = append(all, e.block)
		}
	}
	return all
}
