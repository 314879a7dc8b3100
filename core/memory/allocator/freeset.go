package allocator

import "math/bits"

const (
	classBits = 4 // a power of two and the next have 2^4 classes of sizes between them
	perOctave = 1 << classBits
	// of sizes in units of minBlock, those of less than perOctave units being the first
	octaves   = 64 - 9 - classBits
	usualFree = 16 // for how many blocks a class has room at first
)

// freeSet holds the free blocks of a pool by size, then address, in classes of sizes. A class is
// found without a search, and the hundreds of free blocks of a training have a few dozen sizes, so
// that few classes hold more than one.
type freeSet struct {
	// in falling order: the one that is taken first is the last
	classes [octaves * perOctave][]entry
	filled  [octaves]uint16 // a bit for each class that has entries
	octaves uint64          // a bit for each octave that has
}

type entry struct {
	size, address uint64
	block         int32
}

// cursor points at an entry.
type cursor struct{ class, index int }

func classOf(size uint64) int {
	units := size / minBlock
	if units < perOctave {
		return int(units)
	}
	shift := bits.Len64(units) - 1 - classBits
	return (shift+1)<<classBits | int(units>>shift)&(perOctave-1)
}

func (s *freeSet) valid(c cursor) bool { return c.class < len(s.classes) }

func (s *freeSet) entry(c cursor) entry { return s.classes[c.class][c.index] }

func (s *freeSet) next(c cursor) cursor {
	if c.index == 0 {
		return s.first(c.class + 1)
	}
	return cursor{c.class, c.index - 1}
}

// first points at the first entry of the classes from one on.
func (s *freeSet) first(class int) cursor {
	octave, within, filled := class>>classBits, class&(perOctave-1), uint16(0)
	if octave < octaves {
		filled = s.filled[octave] >> within << within
	}
	if filled == 0 {
		if octave = bits.TrailingZeros64(s.octaves >> (octave + 1) << (octave + 1)); octave == 64 {
			return cursor{len(s.classes), 0}
		}
		filled = s.filled[octave]
	}
	class = octave<<classBits | bits.TrailingZeros16(filled)
	return cursor{class, len(s.classes[class]) - 1}
}

// last points at the largest entry of a set that is not empty.
func (s *freeSet) last() cursor {
	octave := bits.Len64(s.octaves) - 1
	return cursor{octave<<classBits | (bits.Len16(s.filled[octave]) - 1), 0}
}

// largest is the size of the last entry, 0 for an empty set.
func (s *freeSet) largest() uint64 {
	if s.octaves == 0 {
		return 0
	}
	return s.entry(s.last()).size
}

// atLeast points at the first entry of that size or more.
func (s *freeSet) atLeast(size uint64) cursor {
	class := classOf(size)
	entries := s.classes[class]
	switch n := len(entries); {
	case n == 0 || entries[0].size < size:
		return s.first(class + 1)
	case entries[n-1].size >= size: // as nearly always
		return cursor{class, n - 1}
	}
	return s.find(class, size, 0)
}

// find points at the first entry of a class that is not before (size, address).
func (s *freeSet) find(class int, size, address uint64) cursor {
	return cursor{class, notBefore(s.classes[class], size, address) - 1}
}

// notBefore counts the entries that are not before (size, address), which stand first. There is no
// branch to predict in its loop.
func notBefore(entries []entry, size, address uint64) int {
	count := 0
	for n := len(entries); n > 0; {
		half := (n + 1) / 2
		e := &entries[count+half-1]
		_, lower := bits.Sub64(e.address, address, 0)
		_, before := bits.Sub64(e.size, size, lower)
		count += half &^ -int(before)
		n -= half
	}
	return count
}

func (s *freeSet) insert(e entry) {
	class := classOf(e.size)
	entries := s.classes[class]
	if len(entries) == 0 {
		s.filled[class>>classBits] |= 1 << (class & (perOctave - 1))
		s.octaves |= 1 << (class >> classBits)
		if entries == nil {
			s.classes[class] = make([]entry, 0, usualFree)
		}
	}
	i := notBefore(entries, e.size, e.address)
	s.classes[class] = append(s.classes[class], entry{})
	entries = s.classes[class]
	copy(entries[i+1:], entries[i:])
	entries[i] = e
}

// remove takes out the entry of that size and address, which must be there.
func (s *freeSet) remove(size, address uint64) { s.removeAt(s.find(classOf(size), size, address)) }

func (s *freeSet) removeAt(c cursor) {
	entries := s.classes[c.class]
	copy(entries[c.index:], entries[c.index+1:])
	if s.classes[c.class] = entries[:len(entries)-1]; len(entries) > 1 {
		return
	}
	octave := c.class >> classBits
	if s.filled[octave] &^= 1 << (c.class & (perOctave - 1)); s.filled[octave] == 0 {
		s.octaves &^= 1 << octave
	}
}

// blocks lists the entries' blocks in order, for passes that change the set.
func (s *freeSet) blocks() []int32 {
	var all []int32
	for pos := s.first(0); s.valid(pos); pos = s.next(pos) {
		all = append(all, s.entry(pos).block)
	}
	return all
}

// replace puts an entry in place of another one.
func (s *freeSet) replace(c cursor, e entry) {
	entries := s.classes[c.class]
	if c.class == classOf(e.size) && len(entries) == 1 {
		entries[0] = e
		return
	}
	s.removeAt(c)
	s.insert(e)
}
