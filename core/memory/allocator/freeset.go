package allocator

import "math/bits"

// freeSet holds the free blocks of a pool by size, then address. There are hundreds at most.
type freeSet []entry

type entry struct {
	size, address uint64
	block         int32
}

// find is the place of the first entry that is not before (size, address). There is no branch to
// predict in its loop.
func (s freeSet) find(size, address uint64) int {
	place := 0
	for n := len(s); n > 0; {
		half := (n + 1) / 2
		e := &s[place+half-1]
		_, lower := bits.Sub64(e.address, address, 0)
		_, before := bits.Sub64(e.size, size, lower)
		place += half & -int(before)
		n -= half
	}
	return place
}

func (s *freeSet) insert(e entry) {
	place := s.find(e.size, e.address)
	*s = append(*s, entry{})
	copy((*s)[place+1:], (*s)[place:])
	(*s)[place] = e
}

// remove takes out the entry of that size and address, which must be there.
func (s *freeSet) remove(size, address uint64) { s.removeAt(s.find(size, address)) }

func (s *freeSet) removeAt(place int) {
	copy((*s)[place:], (*s)[place+1:])
	*s = (*s)[:len(*s)-1]
}

// replace puts an entry in place of another one.
func (s freeSet) replace(place int, e entry) {
	to := s.find(e.size, e.address)
	if to > place {
		to--
		copy(s[place:], s[place+1:to+1])
	} else {
		copy(s[to+1:], s[to:place])
	}
	s[to] = e
}

// largest is the size of the last entry, 0 for an empty set.
func (s freeSet) largest() uint64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].size
}

// blocks lists the entries' blocks in order, for passes that change the set.
func (s freeSet) blocks() (all []int32) {
	for _, e := range s {
		all = append(all, e.block)
	}
	return all
}
