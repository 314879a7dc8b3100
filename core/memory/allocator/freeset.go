package allocator

// freeSet holds the free blocks of a pool by size, then address. Hundreds of free blocks of a training have a few dozen sizes,
// so each size is there once, with its blocks.
type freeSet struct {
	sizes  []uint64    // that there are blocks of, rising
	lists  []int32     // of each size, index into places
	places [][]located // the blocks of a size by falling address: the one that is taken first is the last
	unused []int32     // lists without a size, kept so that steady use allocates nothing
}

// usualPlaces is for how many blocks of a size there is room at first.
const usualPlaces = 16

type located struct {
	address uint64
	block   int32
}

type entry struct {
	size uint64
	located
}

// cursor points at an entry by its size's index and its place among the blocks of that size.
type cursor struct{ size, place int }

func (s *freeSet) valid(c cursor) bool { return c.size < len(s.sizes) }

func (s *freeSet) at(c cursor) entry { return entry{s.sizes[c.size], s.of(c.size)[c.place]} }

func (s *freeSet) of(size int) []located { return s.places[s.lists[size]] }

func (s *freeSet) next(c cursor) cursor {
	if c.place == 0 {
		return s.first(c.size + 1)
	}
	return cursor{c.size, c.place - 1}
}

// first points at the block of a size, by its index, that is at the lowest address.
func (s *freeSet) first(size int) cursor {
	if size == len(s.sizes) {
		return cursor{size, 0}
	}
	return cursor{size, len(s.of(size)) - 1}
}

// last points at the largest entry of a set that is not empty.
func (s *freeSet) last() cursor { return cursor{len(s.sizes) - 1, 0} }

// largest is the size of the last entry, 0 for an empty set.
func (s *freeSet) largest() uint64 {
	if len(s.sizes) == 0 {
		return 0
	}
	return s.sizes[len(s.sizes)-1]
}

// atLeast points at the first entry of that size or more.
func (s *freeSet) atLeast(size uint64) cursor { return s.first(s.indexOf(size)) }

// indexOf is the index of the first size that is not below one. There is no branch to predict in its loop.
func (s *freeSet) indexOf(size uint64) int {
	sizes, base := s.sizes, 0
	for n := len(sizes); n > 0; {
		half := (n + 1) / 2
		if sizes[base+half-1] < size {
			base += half
		}
		n -= half
	}
	return base
}

// find points at the entry of that size and address, which must be there.
func (s *freeSet) find(size, address uint64) cursor {
	at := s.indexOf(size)
	return cursor{at, placeOf(s.of(at), address)}
}

// placeOf is the index of the first block that is not above an address.
func placeOf(places []located, address uint64) int {
	base := 0
	for n := len(places); n > 0; {
		half := (n + 1) / 2
		if places[base+half-1].address > address {
			base += half
		}
		n -= half
	}
	return base
}

func (s *freeSet) insert(e entry) {
	at := s.indexOf(e.size)
	if at == len(s.sizes) || s.sizes[at] != e.size {
		s.addSize(at, e.size)
	}
	list := s.lists[at]
	place := placeOf(s.places[list], e.address)
	s.places[list] = append(s.places[list], located{})
	places := s.places[list]
	copy(places[place+1:], places[place:])
	places[place] = e.located
}

func (s *freeSet) addSize(at int, size uint64) {
	if len(s.unused) == 0 {
		s.unused = append(s.unused, int32(len(s.places)))
		s.places = append(s.places, make([]located, 0, usualPlaces))
	}
	last := len(s.unused) - 1
	s.sizes, s.lists = append(s.sizes, 0), append(s.lists, 0)
	copy(s.sizes[at+1:], s.sizes[at:])
	copy(s.lists[at+1:], s.lists[at:])
	s.sizes[at], s.lists[at] = size, s.unused[last]
	s.unused = s.unused[:last]
}

func (s *freeSet) remove(c cursor) {
	list := s.lists[c.size]
	places := s.places[list]
	copy(places[c.place:], places[c.place+1:])
	if s.places[list] = places[:len(places)-1]; len(places) > 1 {
		return
	}
	s.unused = append(s.unused, list)
	s.sizes = append(s.sizes[:c.size], s.sizes[c.size+1:]...)
	s.lists = append(s.lists[:c.size], s.lists[c.size+1:]...)
}

// replace puts an entry in place of another one. Often it stays where it is, as what is left of the largest block does.
func (s *freeSet) replace(c cursor, e entry) {
	places := s.of(c.size)
	if len(places) == 1 && (c.size == 0 || s.sizes[c.size-1] < e.size) && (c.size == len(s.sizes)-1 || e.size < s.sizes[c.size+1]) {
		s.sizes[c.size], places[0] = e.size, e.located
		return
	}
	s.remove(c)
	s.insert(e)
}

// blocks lists the entries' blocks in order, for passes that change the set.
func (s *freeSet) blocks() []int32 {
	var all []int32
	for at := s.first(0); s.valid(at); at = s.next(at) {
		all = append(all, s.at(at).block)
	}
	return all
}
