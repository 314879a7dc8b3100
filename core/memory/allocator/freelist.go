package allocator

import "math/bits"

const (
	classBits = 4 // a power of two and the next have 2^4 classes of sizes between them
	perOctave = 1 << classBits
	// of sizes in units of minBlock, those of less than perOctave units being the first
	octaves = 64 - 9 - classBits
)

// freeLists hold the free blocks of a pool by size, then address, in a list for each class of
// sizes. A class is found without a search, and the hundreds of free blocks of a training have a
// few dozen sizes, so that lists are short.
type freeLists struct {
	heads   [octaves * perOctave]int32 // 0 where there is no block
	filled  [octaves]uint16            // a bit for each class that has blocks
	octaves uint64                     // a bit for each octave that has
}

func classOf(size uint64) int {
	units := size / minBlock
	if units < perOctave {
		return int(units)
	}
	shift := bits.Len64(units) - 1 - classBits
	return (shift+1)<<classBits | int(units>>shift)&(perOctave-1)
}

// first is the first block of the classes from one on, 0 without any.
func (f *freeLists) first(class int) int32 {
	octave, within, filled := class>>classBits, class&(perOctave-1), uint16(0)
	if octave < octaves {
		filled = f.filled[octave] >> within << within
	}
	if filled == 0 {
		if octave = bits.TrailingZeros64(f.octaves >> (octave + 1) << (octave + 1)); octave == 64 {
			return 0
		}
		filled = f.filled[octave]
	}
	return f.heads[octave<<classBits|bits.TrailingZeros16(filled)]
}

// setHead sets the first block of a class, 0 for none.
func (f *freeLists) setHead(class, index int32) {
	f.heads[class] = index
	octave, within := class>>classBits, class&(perOctave-1)
	if index != 0 {
		f.filled[octave] |= 1 << within
		f.octaves |= 1 << octave
	} else if f.filled[octave] &^= 1 << within; f.filled[octave] == 0 {
		f.octaves &^= 1 << octave
	}
}

// nextFree is the free block after one, 0 after the last.
func (a *Allocator) nextFree(p *pool, index int32) int32 {
	if b := &a.blocks[index]; b.nextFree == 0 {
		return p.free.first(int(b.class) + 1)
	}
	return a.blocks[index].nextFree
}

// atLeast is the first free block of that size or more, 0 without any.
func (a *Allocator) atLeast(p *pool, size uint64) int32 {
	class := classOf(size)
	for index := p.free.heads[class]; index != 0; index = a.blocks[index].nextFree {
		if a.blocks[index].size >= size {
			return index
		}
	}
	return p.free.first(class + 1)
}

// freeBlocks lists the free blocks of a pool in order, for passes that change them.
func (a *Allocator) freeBlocks(p *pool) []int32 {
	var all []int32
	for index := p.free.first(0); index != 0; index = a.nextFree(p, index) {
		all = append(all, index)
	}
	return all
}

// addFree dates a block and puts it into its pool.
func (a *Allocator) addFree(p *pool, index int32) {
	b := &a.blocks[index]
	b.sinceCall, b.class = p.searches, int32(classOf(b.size))
	before, after := int32(0), p.free.heads[b.class]
	for after != 0 && a.blocks[after].isBefore(b) {
		before, after = after, a.blocks[after].nextFree
	}
	a.joinFree(p, b.class, before, index)
	a.joinFree(p, b.class, index, after)
}

// isBefore reports whether a free block is taken before another one that fits as well.
func (b *block) isBefore(other *block) bool {
	return b.size < other.size || b.size == other.size && b.address < other.address
}

func (a *Allocator) removeFree(p *pool, index int32) {
	b := &a.blocks[index]
	a.joinFree(p, b.class, b.prevFree, b.nextFree)
}

// joinFree makes two free blocks neighbours in the list of a class; 0 is its end.
func (a *Allocator) joinFree(p *pool, class, before, after int32) {
	if before == 0 {
		p.free.setHead(class, after)
	} else {
		a.blocks[before].nextFree = after
	}
	if after != 0 {
		a.blocks[after].prevFree = before
	}
}

// moveFree dates a free block that has changed, and puts it where it belongs now.
func (a *Allocator) moveFree(p *pool, index int32) {
	b := &a.blocks[index]
	if b.prevFree|b.nextFree == 0 && int(b.class) == classOf(b.size) {
		b.sinceCall = p.searches
		return
	}
	a.removeFree(p, index)
	a.addFree(p, index)
}
